/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A table as JSON.  A field: [name, format, nullable, [children], [key, value...]].  Values: a
 * column is an array; a struct, an array of its fields.  Integers are strings of digits; floating
 * point is "d" and the bits of the double; binary, and what has no other form, "x" and its bytes.
 */
#include <string.h>

#include "lib/arrow/arrow.h"

static int64_t offset_at(const struct ArrowArray *a, int64_t i, int wide)
{
	int64_t offset = 0;
	int32_t narrow;

	if (wide) {
		memcpy(&offset, (const char *)a->buffers[1] + 8 * i, 8);
	} else {
		memcpy(&narrow, (const char *)a->buffers[1] + 4 * i, 4);
		offset = narrow;
	}
	return offset;
}

static void print_hex(FILE *out, const void *data, size_t bytes)
{
	fputs("\"x", out);
	for (size_t i = 0; i < bytes; i++)
		fprintf(out, "%02x", ((const unsigned char *)data)[i]);
	fputc('"', out);
}

static double half(uint16_t bits)
{
	int exponent = bits >> 10 & 31, fraction = bits & 1023;
	double value = exponent ? 1024 + fraction : fraction;

	for (int e = exponent ? exponent : 1; e < 25; e++)
		value /= 2;
	for (int e = 25; e < exponent; e++)
		value *= 2;
	return bits & 0x8000 ? -value : value;
}

static void print_float(FILE *out, char type, const char *at)
{
	uint64_t bits;
	uint16_t small;
	double value;
	float single;

	if (type == 'e') {
		memcpy(&small, at, sizeof(small));
		value = half(small);
	} else if (type == 'f') {
		memcpy(&single, at, sizeof(single));
		value = (double)single;
	} else {
		memcpy(&value, at, sizeof(value));
	}
	memcpy(&bits, &value, sizeof(bits));
	fprintf(out, "\"d%016llx\"", (unsigned long long)bits);
}

static void print_integer(FILE *out, char type, const char *at)
{
	int size = type == 'c' || type == 'C'	? 1
		   : type == 's' || type == 'S' ? 2
		   : type == 'i' || type == 'I' ? 4
						: 8;
	uint64_t value = 0;

	for (int i = 0; i < size; i++)
		value |= (uint64_t)(uint8_t)at[i] << 8 * i;
	if (type >= 'a') /* signed */
		fprintf(out, "\"%lld\"",
			(long long)(int64_t)(value << (64 - 8 * size)) >> (64 - 8 * size));
	else
		fprintf(out, "\"%llu\"", (unsigned long long)value);
}

static int width_of(const char *format)
{
	static const struct {
		const char *format;
		int width;
	} widths[] = { { "tdD", 4 }, { "tts", 4 }, { "ttm", 4 }, { "tiM", 4 }, { "tin", 16 },
		       { "e", 2 },   { "f", 4 },   { "c", 1 },	 { "C", 1 },   { "s", 2 },
		       { "S", 2 },   { "i", 4 },   { "I", 4 } };
	int precision, scale, bits = 128, n;

	for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++)
		if (!strcmp(format, widths[i].format))
			return widths[i].width;
	if (sscanf(format, "w:%d", &n) == 1)
		return n;
	if (sscanf(format, "d:%d,%d,%d", &precision, &scale, &bits) >= 2)
		return bits / 8;
	return 8;
}

static void print_value(FILE *out, const struct ArrowSchema *s, const struct ArrowArray *a,
			int64_t i);

static void print_values(FILE *out, const struct ArrowSchema *s, const struct ArrowArray *a,
			 int64_t from, int64_t to)
{
	fputc('[', out);
	for (int64_t i = from; i < to; i++) {
		if (i > from)
			fputc(',', out);
		print_value(out, s, a, i);
	}
	fputc(']', out);
}

static void print_struct(FILE *out, const struct ArrowSchema *s, const struct ArrowArray *a,
			 int64_t at)
{
	fputc('[', out);
	for (int64_t k = 0; k < s->n_children; k++) {
		if (k)
			fputc(',', out);
		print_value(out, s->children[k], a->children[k], at);
	}
	fputc(']', out);
}

static void print_fixed(FILE *out, const char *format, const char *data, int64_t at)
{
	int width = width_of(format);

	data += at * width;
	if (strchr("cCsSiIlL", *format) && !format[1])
		print_integer(out, *format, data);
	else if (strchr("efg", *format) && !format[1])
		print_float(out, *format, data);
	else
		print_hex(out, data, (size_t)width);
}

static void print_variable(FILE *out, const char *format, const struct ArrowArray *a, int64_t at)
{
	int wide = *format < 'a';
	int64_t from = offset_at(a, at, wide), to = offset_at(a, at + 1, wide);
	const char *data = (const char *)a->buffers[2] + (to > from ? from : 0);

	if (*format == 'u' || *format == 'U')
		fprintf(out, "\"%.*s\"", (int)(to - from), to > from ? data : "");
	else
		print_hex(out, data, (size_t)(to - from));
}

static void print_value(FILE *out, const struct ArrowSchema *s, const struct ArrowArray *a,
			int64_t i)
{
	int64_t at = a->offset + i, n;
	const unsigned char *valid = a->n_buffers ? a->buffers[0] : NULL;
	const char *format = s->format;

	MUST(i >= 0 && i < a->length);
	if (!strcmp(format, "n") || (valid && !(valid[at / 8] >> at % 8 & 1)))
		fputs("null", out);
	else if (!strcmp(format, "b"))
		fputs(((const unsigned char *)a->buffers[1])[at / 8] >> at % 8 & 1 ? "true"
										   : "false",
		      out);
	else if (!strcmp(format, "+s"))
		print_struct(out, s, a, at);
	else if (!strcmp(format, "+l") || !strcmp(format, "+L") || !strcmp(format, "+m"))
		print_values(out, s->children[0], a->children[0],
			     offset_at(a, at, format[1] == 'L'),
			     offset_at(a, at + 1, format[1] == 'L'));
	else if (sscanf(format, "+w:%ld", &n) == 1)
		print_values(out, s->children[0], a->children[0], at * n, at * n + n);
	else if (strchr("zZuU", *format) && !format[1])
		print_variable(out, format, a, at);
	else
		print_fixed(out, format, a->buffers[1], at);
}

static void print_metadata(FILE *out, const char *metadata)
{
	int32_t n = 0, bytes;

	if (metadata) {
		memcpy(&n, metadata, sizeof(n));
		metadata += sizeof(n);
	}
	fputc('[', out);
	for (int i = 0; i < 2 * n; i++) {
		memcpy(&bytes, metadata, sizeof(bytes));
		metadata += sizeof(bytes);
		fprintf(out, "%s\"%.*s\"", i ? "," : "", bytes, metadata);
		metadata += bytes;
	}
	fputc(']', out);
}

static void print_fields(FILE *out, const struct ArrowSchema *s);

static void print_field(FILE *out, const struct ArrowSchema *s)
{
	int precision, scale;

	fprintf(out, "[\"%s\",", s->name ? s->name : "");
	if (sscanf(s->format, "d:%d,%d", &precision, &scale) == 2) /* the width may be left out */
		fprintf(out, "\"d:%d,%d,%d\"", precision, scale, width_of(s->format) * 8);
	else
		fprintf(out, "\"%s%s\"", s->format,
			!strcmp(s->format, "+m") && s->flags & ARROW_FLAG_MAP_KEYS_SORTED
				? ":sorted"
				: "");
	fprintf(out, ",%s,", s->flags & ARROW_FLAG_NULLABLE ? "true" : "false");
	print_fields(out, s);
	fputc(',', out);
	print_metadata(out, s->metadata);
	fputc(']', out);
}

static void print_fields(FILE *out, const struct ArrowSchema *s)
{
	fputc('[', out);
	for (int64_t i = 0; i < s->n_children; i++) {
		if (i)
			fputc(',', out);
		print_field(out, s->children[i]);
	}
	fputc(']', out);
}

char *arrow_print(const struct arrow_table *table)
{
	size_t bytes;
	char *text;
	FILE *out = open_memstream(&text, &bytes);

	MUST(out);
	fputs("{\"fields\":", out);
	print_fields(out, table->schema);
	fputs(",\"metadata\":", out);
	print_metadata(out, table->schema->metadata);
	fputs(",\"batches\":[", out);
	for (size_t b = 0; b < table->batches_n; b++) {
		const struct ArrowArray *a = table->batches[b];

		fprintf(out, "%s{\"rows\":%lld,\"columns\":[", b ? "," : "", (long long)a->length);
		for (int64_t i = 0; i < a->n_children; i++) {
			if (i)
				fputc(',', out);
			print_values(out, table->schema->children[i], a->children[i], a->offset,
				     a->offset + a->length);
		}
		fputs("]}", out);
	}
	fputs("]}", out);
	MUST(fclose(out) == 0);
	return text;
}
