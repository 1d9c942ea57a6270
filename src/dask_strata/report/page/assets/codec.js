// Decodes the containers of columns.py: base64, inflate, byte planes, differences.

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function unpack(id) {
  const element = document.getElementById(id);
  const stream = new Blob([bytesOf(element.textContent.trim())]).stream()
    .pipeThrough(new DecompressionStream("deflate"));
  element.textContent = "";
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const columns = new Map();
  let at = 4 + size;
  for (const column of JSON.parse(new TextDecoder().decode(bytes.subarray(4, at)))) {
    columns.set(column.name, { ...column, data: bytes.subarray(at, at + column.bytes) });
    at += column.bytes;
  }
  return columns;
}

function ints(columns, name, Kind = Float64Array) {
  const { n, width, delta, data } = columns.get(name);
  const values = new Kind(n);
  let last = 0;
  if (width <= 4) {  // 32-bit arithmetic is faster
    const second = width > 1 ? n : -1, third = width > 2 ? 2 * n : -1, fourth = width > 3 ? 3 * n : -1;
    for (let i = 0; i < n; i++) {
      let v = data[i];
      if (second > 0) v |= data[second + i] << 8;
      if (third > 0) v |= data[third + i] << 16;
      if (fourth > 0) v |= data[fourth + i] << 24;
      v = (v >>> 1) ^ -(v & 1);
      values[i] = delta ? (last += v) : v;
    }
    return values;
  }
  for (let i = 0; i < n; i++) {
    let v = 0;
    for (let plane = width - 1; plane >= 0; plane--) v = v * 256 + data[plane * n + i];
    v = v % 2 ? -(v + 1) / 2 : v / 2;
    values[i] = delta ? (last += v) : v;
  }
  return values;
}

// Texts are decoded at their first use.
function texts(columns, name) {
  const { n, data } = columns.get(name), tokens = columns.get(`${name}.tokens`).data;
  const used = ints(columns, `${name}.used`, Int32Array);
  const ends = new Uint32Array(n + 1), marks = new Uint32Array(n + 1), decoder = new TextDecoder();
  let row = 0, seen = 0;
  for (let i = 0; i < data.length && row < n; i++) {
    if (data[i] === 1) seen++;
    else if (data[i] === 0) { ends[++row] = i + 1; marks[row] = seen; }
  }
  if (n) { ends[n] = data.length + 1; marks[n] = seen; }
  const hex = Array.from({ length: 256 }, (_, b) => b.toString(16).padStart(2, "0"));
  const { size } = columns.get(`${name}.tokens`);
  const token = (place) => {
    let text = "";
    for (let i = size * place; i < size * place + size; i++) text += hex[tokens[i]];
    return size < 16 ? `${text}…` : text;
  };
  return (i) => {
    let mark = marks[i];
    return decoder.decode(data.subarray(ends[i], ends[i + 1] - 1))
      .replaceAll("\x01", () => token(used[mark++]));
  };
}
