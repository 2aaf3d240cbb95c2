//! Values on their way between the two languages.

use std::any::Any;
use std::sync::{Arc, Mutex};

use crate::error::Error;

/// What a host function gave back.
pub enum Reply {
    Return(Vec<Value>),
    /// Suspend the coroutine that called, handing these values to its resumer; what it is resumed with goes through
    /// `then`, if there is one, and back to the caller.
    Yield {
        values: Vec<Value>,
        then: Option<Arc<dyn Callback>>,
    },
    /// Suspend the coroutine that called until the host has awaited this.
    Await(Value),
}

/// A host function.
pub trait Callback: Send + Sync {
    /// Answer one call; an error is raised in the script as given.
    fn call(&self, arguments: Vec<Value>) -> std::result::Result<Reply, Value>;
    /// Whether tables reach the host as handles.
    fn shallow(&self) -> bool;
    /// The host's own object, for the caller that receives the function back.
    fn as_any(&self) -> &dyn Any;
}

/// Something of the host's that a script can hold, raise, describe, and use as far as the host allows.
pub trait Object: Send + Sync {
    /// What `tostring` says.
    fn message(&self) -> String;
    /// A field; an error is raised in the script as given.
    fn get(&self, name: &[u8]) -> std::result::Result<Value, Value>;
    /// Set a field; an error is raised in the script as given.
    fn set(&self, name: &[u8], _value: Value) -> std::result::Result<(), Value> {
        Err(Value::text(&format!("{} cannot be written", String::from_utf8_lossy(name))))
    }
    /// Whether both are the same thing of the host's.
    fn same(&self, _other: &dyn Object) -> bool {
        false
    }
    fn as_any(&self) -> &dyn Any;
}

/// The kinds of value that are handed out by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Table,
    Function,
    Thread,
    Buffer,
    Userdata,
}

/// References that were dropped and wait until the VM can release them.
pub type Forgotten = Arc<Mutex<Vec<i32>>>;

/// A value that stays in the VM, anchored until this is dropped.
pub struct Reference {
    pub id: i32,
    pub kind: Kind,
    pub home: Forgotten,
}

impl Drop for Reference {
    fn drop(&mut self) {
        if let Ok(mut forgotten) = self.home.lock() {
            forgotten.push(self.id);
        }
    }
}

#[derive(Clone)]
pub enum Value {
    Nil,
    Boolean(bool),
    Number(f64),
    /// Luau's 64-bit integer type, which is apart from its numbers.
    Integer(i64),
    Text(Vec<u8>),
    Buffer(Vec<u8>),
    Vector([f32; 3]),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Reference(Arc<Reference>),
    Callback(Arc<dyn Callback>),
    Object(Arc<dyn Object>),
}

impl Value {
    pub fn text(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }

    /// Say what an error value says.
    pub fn describe(&self) -> String {
        match self {
            Value::Nil => "nil".to_owned(),
            Value::Boolean(flag) => flag.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Integer(number) => number.to_string(),
            Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Value::Object(object) => object.message(),
            Value::Map(pairs) => {
                let said = pairs.iter().find(|(key, _)| matches!(key, Value::Text(text) if text == b"message"));
                match said {
                    Some((_, Value::Text(text))) => String::from_utf8_lossy(text).into_owned(),
                    _ => "(error object is a table)".to_owned(),
                }
            }
            other => format!("(error object is a {})", other.type_name()),
        }
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Nil => "nil",
            Value::Boolean(_) => "boolean",
            Value::Number(_) => "number",
            Value::Integer(_) => "integer",
            Value::Text(_) => "string",
            Value::Buffer(_) => "buffer",
            Value::Vector(_) => "vector",
            Value::List(_) | Value::Map(_) => "table",
            Value::Callback(_) => "function",
            Value::Object(_) => "userdata",
            Value::Reference(reference) => match reference.kind {
                Kind::Table => "table",
                Kind::Function => "function",
                Kind::Thread => "thread",
                Kind::Buffer => "buffer",
                Kind::Userdata => "userdata",
            },
        }
    }
}

/// How tables and the values that are no data cross over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Crossing {
    /// Tables by value; a function or thread is an error.
    Plain,
    /// Tables by value; functions and threads by reference.
    Deep,
    /// Tables by reference too.
    Shallow,
}

/// How much of a value may cross, so that a small script cannot make a large host.
pub struct Allowance {
    pub depth: usize,
    pub bytes: usize,
}

impl Allowance {
    /// Count one value of this size.
    pub fn spend(&mut self, bytes: usize) -> Result<(), Error> {
        match self.bytes.checked_sub(bytes + NODE) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => Err(Error::Conversion("value is too large to cross".to_owned())),
        }
    }
}

/// What one value costs the host, whatever it holds.
const NODE: usize = 64;
