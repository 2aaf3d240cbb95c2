// Offsets of deltas count code points; strings count UTF-16 units.

export const isLowSurrogate = (unit: number): boolean => unit >= 0xdc00 && unit <= 0xdfff;

/** The number of code points, which is what offsets count. */
export function countPoints(text: string): number {
  let pairs = 0;
  for (let index = 0; index < text.length; index++) if (isLowSurrogate(text.charCodeAt(index))) pairs++;
  return text.length - pairs;
}

/** The text after its first `count` code points. */
export function dropPoints(text: string, count: number): string {
  let index = 0;
  for (let left = count; left > 0 && index < text.length; left--) {
    index += isLowSurrogate(text.charCodeAt(index + 1)) ? 2 : 1;
  }
  return text.slice(index);
}
