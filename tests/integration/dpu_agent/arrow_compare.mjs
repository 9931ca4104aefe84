// SPDX-License-Identifier: BSD-3-Clause
// Arrow IPC streams and files, read by npm's apache-arrow, against what the program that moved them says is in them.
//   node compare.mjs PACKAGE DIR: DIR/streams, DIR/files and DIR/tables of test_dpu_arrow; PACKAGE: its node_modules/apache-arrow
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const [, , packageDir, dir] = process.argv;
const arrow = createRequire(import.meta.url)(packageDir);
const { DataType, Precision, RecordBatchReader, Type, Vector } = arrow;
const units = 'smun';

// A type as the format string of the C data interface.
function formatOf(type) {
  switch (type.typeId) {
    case Type.Null: return 'n';
    case Type.Bool: return 'b';
    case Type.Int: {
      const c = { 8: 'c', 16: 's', 32: 'i', 64: 'l' }[type.bitWidth];
      return type.isSigned ? c : c.toUpperCase();
    }
    case Type.Float: return { [Precision.HALF]: 'e', [Precision.SINGLE]: 'f', [Precision.DOUBLE]: 'g' }[type.precision];
    case Type.Binary: return 'z';
    case Type.LargeBinary: return 'Z';
    case Type.Utf8: return 'u';
    case Type.LargeUtf8: return 'U';
    case Type.Decimal: return `d:${type.precision},${type.scale},${type.bitWidth}`;
    case Type.Date: return 'td' + 'Dm'[type.unit];
    case Type.Time: {
      const unit = units[type.unit];
      if (type.bitWidth !== ('sm'.includes(unit) ? 32 : 64)) throw new Error(`a time of ${type.bitWidth} bits`);
      return 'tt' + unit;
    }
    case Type.Timestamp: return `ts${units[type.unit]}:${type.timezone ?? ''}`;
    case Type.Duration: return 'tD' + units[type.unit];
    case Type.Interval: return 'ti' + 'MDn'[type.unit];
    case Type.List: return '+l';
    case Type.LargeList: return '+L';
    case Type.Map: return type.keysSorted ? '+m:sorted' : '+m';
    case Type.Struct: return '+s';
    case Type.FixedSizeBinary: return `w:${type.byteWidth}`;
    case Type.FixedSizeList: return `+w:${type.listSize}`;
    default: throw new Error(`type ${type}`);
  }
}

const pairs = (metadata) => [...(metadata ?? [])].flat();
const fieldOf = (f) => [f.name, formatOf(f.type), f.nullable, (f.type.children ?? []).map(fieldOf), pairs(f.metadata)];
const hex = (bytes) => 'x' + Buffer.from(bytes).toString('hex');

function bitsOf(number) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, number);
  return 'd' + view.getBigUint64(0).toString(16).padStart(16, '0');
}

// Bytes of element i where the library gives a value another meaning: dates, decimals...
function rawOf(data, i) {
  const format = formatOf(data.type), { values } = data;
  const width = format.startsWith('d:') ? data.type.bitWidth / 8
    : format.startsWith('w:') ? data.type.byteWidth
      : format === 'tin' ? 16
        : ['tdD', 'tts', 'ttm', 'tiM'].includes(format) ? 4 : 8;
  return hex(new Uint8Array(values.buffer, values.byteOffset + (data.offset + i) * width, width));
}

function valuesOf(data, from, to) {
  const out = [];
  for (let i = from; i < to; i++) out.push(valueOf(data, i));
  return out;
}

function valueOf(data, i) {
  const { type } = data;
  if (DataType.isNull(type) || !data.getValid(i)) return null;
  if ([Type.List, Type.LargeList, Type.Map].includes(type.typeId))
    return valuesOf(data.children[0], Number(data.valueOffsets[i]), Number(data.valueOffsets[i + 1]));
  if (DataType.isFixedSizeList(type)) return valuesOf(data.children[0], i * type.listSize, (i + 1) * type.listSize);
  if (DataType.isStruct(type)) return data.children.map((child) => valueOf(child, i));
  const value = () => data.vector.get(i);
  data.vector ??= new Vector([data]);
  switch (type.typeId) {
    case Type.Bool: return value();
    case Type.Int: return String(value());
    case Type.Float: return bitsOf(value());
    case Type.Utf8:
    case Type.LargeUtf8: return value();
    case Type.Binary:
    case Type.LargeBinary: return hex(value());
    default: return rawOf(data, i);
  }
}

// Of a stream without batches the library makes one without rows.
function tableOf(bytes, batchesN) {
  const reader = RecordBatchReader.from(bytes).open();
  const { schema } = reader, batches = [];
  for (const batch of reader)
    batches.push({
      rows: batch.numRows,
      columns: batch.data.children.map((child) => valuesOf(child, 0, batch.numRows)),
    });
  if (!batchesN && batches.length === 1 && !batches[0].rows) batches.pop();
  return { fields: schema.fields.map(fieldOf), metadata: pairs(schema.metadata), batches };
}

const tables = readFileSync(`${dir}/tables`, 'utf8').trimEnd().split('\n');
let wrong = 0;
const types = new Set();
const note = (f) => { types.add(f[1].replace(/:.*/, '')); f[3].forEach(note); };

// Each is behind its length; isKind: whether the library takes it for what it is.
function compare(name, isKind) {
  const all = readFileSync(`${dir}/${name}`);
  let at = 0;
  tables.forEach((line, k) => {
    const bytes = Number(all.readBigUInt64LE(at));
    // a copy, aligned as the step is
    const one = new Uint8Array(all.subarray(at + 8, at + 8 + bytes));
    at += 8 + bytes;
    const want = JSON.parse(line);
    want.fields.forEach(note);
    let said;
    try {
      if (!isKind(RecordBatchReader.from(one).open())) throw new Error(`not one of ${name}`);
      said = JSON.stringify(tableOf(one, want.batches.length));
    } catch (error) {
      said = String(error.stack);
    }
    if (said !== JSON.stringify(want) && ++wrong <= 5)
      console.log(`${name} ${k + 1}: ${said.slice(0, 1500)}\nexpected ${JSON.stringify(want).slice(0, 1500)}`);
  });
  if (at !== all.length) throw new Error(`${all.length - at} bytes are left`);
}

compare('streams', (reader) => reader.isStream());
compare('files', (reader) => reader.isFile());
console.log(`apache-arrow: ${tables.length} tables with ${types.size} kinds of types, as streams and as files, ` +
  `${wrong} of them wrong`);
process.exit(wrong ? 1 : 0);
