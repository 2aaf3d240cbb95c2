//! Values as JSON, for hosts that only pass them on.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, SerializeMap, Serializer};

use crate::error::{Error, Result};
use crate::step::{Call, Step};
use crate::value::Value;

/// The largest whole number up to which all are exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Read JSON; `null` is nil.
pub fn read(json: &[u8]) -> Result<Value> {
    serde_json::from_slice(json).map_err(|error| Error::Conversion(format!("not JSON that Luau can hold: {error}")))
}

/// Write a step: `{"calls": […], "dropped": […]}` or `{"done": […]}`.
pub fn write(step: &Step) -> Result<Vec<u8>> {
    serde_json::to_vec(step).map_err(|error| Error::Conversion(format!("not JSON: {error}")))
}

struct Reader;

fn exact<E: serde::de::Error>(number: f64, same: bool) -> std::result::Result<Value, E> {
    if same { Ok(Value::Number(number)) } else { Err(E::custom("a whole number that is not exactly a Luau number")) }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_bool<E>(self, flag: bool) -> std::result::Result<Value, E> {
        Ok(Value::Boolean(flag))
    }

    fn visit_f64<E>(self, number: f64) -> std::result::Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> std::result::Result<Value, E> {
        exact(number as f64, number as f64 as i128 == i128::from(number))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> std::result::Result<Value, E> {
        exact(number as f64, number as f64 as i128 == i128::from(number))
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Value, E> {
        Ok(Value::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Value, Value>()? {
            if !matches!(key, Value::Text(_)) {
                return Err(A::Error::custom("a key is a string"));
            }
            pairs.push((key, value));
        }
        Ok(Value::Map(pairs))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Value, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Value::Nil => serializer.serialize_unit(),
            Value::Boolean(flag) => serializer.serialize_bool(*flag),
            Value::Number(number) if number.fract() == 0.0 && number.abs() <= EXACT => {
                serializer.serialize_i64(*number as i64)
            }
            Value::Number(number) if number.is_finite() => serializer.serialize_f64(*number),
            Value::Number(_) => Err(S::Error::custom("a number that is not finite")),
            Value::Integer(number) => serializer.serialize_i64(*number),
            Value::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => serializer.serialize_str(text),
                Err(_) => Err(S::Error::custom("a string that is not UTF-8")),
            },
            Value::List(items) => serializer.collect_seq(items),
            Value::Map(pairs) => {
                let mut map = serializer.serialize_map(Some(pairs.len()))?;
                for (key, value) in pairs {
                    match key {
                        Value::Text(_) => map.serialize_entry(key, value)?,
                        // JSON has no other keys than strings.
                        Value::Number(_) | Value::Integer(_) => map.serialize_entry(&key.describe(), value)?,
                        other => return Err(S::Error::custom(format!("a {} as a key", other.type_name()))),
                    }
                }
                map.end()
            }
            other => Err(S::Error::custom(format!("a {}", other.type_name()))),
        }
    }
}

impl Serialize for Call {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("args", &self.arguments)?;
        map.end()
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Step::Waiting { calls, dropped } => {
                map.serialize_entry("calls", calls)?;
                map.serialize_entry("dropped", dropped)?;
            }
            Step::Done(values) => map.serialize_entry("done", values)?,
        }
        map.end()
    }
}
