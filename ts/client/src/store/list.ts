// An immutable list that is plain JSON: a tree of arrays with at most 32 entries each. Adding, replacing and reading
// an entry copies or visits one path of the tree, so its cost does not grow with the length of the list.

const BITS = 5;
const WIDTH = 1 << BITS;

type Node<T> = (Node<T> | T)[];

export interface List<T> {
  size: number;
  /** Levels of the tree above the arrays that hold entries. */
  depth: number;
  root: Node<T>;
}

export function emptyList<T>(): List<T> {
  return { size: 0, depth: 0, root: [] };
}

const slotOf = (index: number, depth: number): number => (index >> (BITS * depth)) & (WIDTH - 1);

/** The entry at `index`, or undefined. A negative index counts from the end. */
export function at<T>(list: List<T>, index: number): T | undefined {
  const position = index < 0 ? list.size + index : index;
  if (position < 0 || position >= list.size) return undefined;
  let node = list.root;
  for (let depth = list.depth; depth > 0; depth--) node = node[slotOf(position, depth)] as Node<T>;
  return node[position & (WIDTH - 1)] as T;
}

export const last = <T>(list: List<T>): T | undefined => at(list, -1);

function replaced<T>(node: Node<T>, depth: number, index: number, item: T): Node<T> {
  const copy = node.slice();
  const slot = slotOf(index, depth);
  copy[slot] = depth === 0 ? item : replaced((copy[slot] as Node<T> | undefined) ?? [], depth - 1, index, item);
  return copy;
}

/** The list with another entry at `index`, which must exist. */
export function replace<T>(list: List<T>, index: number, item: T): List<T> {
  return { ...list, root: replaced(list.root, list.depth, index, item) };
}

export function push<T>(list: List<T>, item: T): List<T> {
  const isFull = list.size === WIDTH ** (list.depth + 1);
  const depth = isFull ? list.depth + 1 : list.depth;
  const root = isFull ? [list.root] : list.root;
  return { size: list.size + 1, depth, root: replaced(root, depth, list.size, item) };
}

/** The first `size` entries. */
export function truncate<T>(list: List<T>, size: number): List<T> {
  if (size >= list.size) return list;
  if (size <= 0) return emptyList();
  const cut = (node: Node<T>, depth: number): Node<T> => {
    const slot = slotOf(size - 1, depth);
    const kept = node.slice(0, slot + 1);
    if (depth > 0) kept[slot] = cut(kept[slot] as Node<T>, depth - 1);
    return kept;
  };
  return { size, depth: list.depth, root: cut(list.root, list.depth) };
}

/** The arrays of up to 32 entries that make up the list. An array whose entries did not change stays the same object. */
export function pages<T>(list: List<T>): readonly (readonly T[])[] {
  let nodes: Node<T>[] = list.size ? [list.root] : [];
  for (let depth = list.depth; depth > 0; depth--) nodes = nodes.flat() as Node<T>[];
  return nodes as T[][];
}

export const toArray = <T>(list: List<T>): T[] => pages(list).flat() as T[];
