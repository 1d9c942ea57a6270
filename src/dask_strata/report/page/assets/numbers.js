// Numbers as words: the same functions, with the same results, as in analysis/words.py.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

function numberText(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (!(size >= 1e-9 && size < 1e15)) return value.toExponential(2).replace(/\.?0+e/, "e");
  let decimals = 2;
  for (let limit = 10; decimals > 0 && size >= limit; limit *= 10) decimals--;
  for (let limit = 1; size < limit; limit /= 10) decimals++;
  const text = value.toFixed(decimals);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function durationText(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `-${durationText(-seconds)}`;
  if (seconds < 0.09995) return `${numberText(seconds * 1e3)} ms`;
  if (seconds < 99.95) return `${numberText(seconds)} s`;
  let whole = Math.floor(seconds + 0.5), units = ["min", "s"];
  if (whole >= 3600) { whole = Math.floor(seconds / 60 + 0.5); units = ["h", "min"]; }
  const rest = whole % 60;
  return `${(whole - rest) / 60} ${units[0]}${rest ? ` ${rest} ${units[1]}` : ""}`;
}

function sizeText(bytes) {
  if (!Number.isFinite(bytes)) return "–";
  if (bytes < 0) return `-${sizeText(-bytes)}`;
  let unit = 0;
  for (; bytes >= 1023.5 && unit < BYTE_UNITS.length - 1; unit++) bytes /= 1024;
  return `${numberText(bytes)} ${BYTE_UNITS[unit]}`;
}

function rateText(bytesPerSecond) {
  if (!Number.isFinite(bytesPerSecond)) return "–";
  return `${numberText(bytesPerSecond / 1024 ** 2)} MiB/s`;
}
