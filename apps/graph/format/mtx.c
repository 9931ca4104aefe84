/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/source.h"
#include "graph/format/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <strings.h>

struct mtx {
	struct soda_graph_source source;
	struct soda_graph_text *text;
	unsigned values; /* a line has so many after its two indices */
	bool mirrored;	 /* half of the matrix is in the file */
	uint64_t entries, read;
	bool negated;			/* the other half has the values' opposites */
	struct soda_graph_edge pending; /* the mirror image of the last entry */
	double pending_weight;
	bool has_pending;
};

static int expect_word(struct soda_graph_text *t, const char *word, struct soda_graph_error *err)
{
	char found[32];

	soda_graph_text_skip_blanks(t);
	soda_graph_text_word(t, found, sizeof(found));
	if (!strcasecmp(found, word))
		return 0;
	return soda_graph_fail(err, EINVAL, "%s:%" PRIu64 ": expected '%s', found '%s'", t->path,
			       t->line, word, found);
}

/* The index of the next word among NULL-terminated ones, or -EINVAL. */
static int read_choice(struct soda_graph_text *t, const char *const *words, const char *expected,
		       struct soda_graph_error *err)
{
	char found[32];

	soda_graph_text_skip_blanks(t);
	soda_graph_text_word(t, found, sizeof(found));
	for (int i = 0; words[i]; i++)
		if (!strcasecmp(found, words[i]))
			return i;
	return soda_graph_fail(err, EINVAL, "%s:%" PRIu64 ": expected %s, found '%s'", t->path,
			       t->line, expected, found);
}

/* %%MatrixMarket matrix coordinate FIELD SYMMETRY */
static int read_banner(struct mtx *m, struct soda_graph_error *err)
{
	static const char *const fields[] = { "pattern", "real", "integer", "complex", NULL };
	static const char *const shapes[] = { "general", "symmetric", "skew-symmetric", "hermitian",
					      NULL };
	struct soda_graph_text *t = m->text;
	int field, shape, ret;

	ret = expect_word(t, "%%MatrixMarket", err);
	if (!ret)
		ret = expect_word(t, "matrix", err);
	if (!ret)
		ret = expect_word(t, "coordinate", err);
	if (ret)
		return ret;
	field = read_choice(t, fields, "pattern, real, integer or complex", err);
	if (field < 0)
		return field;
	shape = read_choice(t, shapes, "general, symmetric, skew-symmetric or hermitian", err);
	if (shape < 0)
		return shape;
	m->values = field == 0 ? 0 : field == 3 ? 2 : 1;
	m->mirrored = shape != 0;
	m->negated = shape == 2;
	return soda_graph_text_end_line(t, "the end of the line after the symmetry", err);
}

static int read_numbers(struct soda_graph_text *t, const char *const *expected, unsigned count,
			uint64_t most, uint64_t *numbers, struct soda_graph_error *err)
{
	int ret = 0;

	for (unsigned i = 0; i < count && !ret; i++) {
		soda_graph_text_skip_blanks(t);
		ret = soda_graph_text_number(t, expected[i], most, &numbers[i], err);
	}
	return ret;
}

static void skip_comments(struct soda_graph_text *t)
{
	for (;;) {
		soda_graph_text_skip_space(t);
		if (soda_graph_text_peek(t) != '%')
			return;
		soda_graph_text_skip_line(t);
	}
}

static int read_size(struct mtx *m, struct soda_graph_error *err)
{
	static const char *const expected[] = { "the number of rows", "the number of columns",
						"the number of entries" };
	struct soda_graph_text *t = m->text;
	uint64_t size[3];
	int ret;

	skip_comments(t);
	ret = read_numbers(t, expected, 3, UINT64_MAX / 16, size, err);
	if (ret)
		return ret;
	if (size[0] != size[1] || !size[0] || size[0] > SODA_GRAPH_VERTICES_MAX)
		return soda_graph_fail(err, EINVAL,
				       "%s:%" PRIu64 ": expected a square matrix of 1 to %" PRIu64
				       " rows, found %" PRIu64 " rows and %" PRIu64 " columns",
				       t->path, t->line, SODA_GRAPH_VERTICES_MAX, size[0], size[1]);
	m->source.vertices = size[0];
	m->entries = size[2];
	return soda_graph_text_end_line(t, "the end of the line after three numbers", err);
}

static int mtx_rewind(struct soda_graph_source *source, struct soda_graph_error *err)
{
	struct mtx *m = (struct mtx *)source;
	int ret = soda_graph_text_rewind(m->text, err);

	m->read = 0;
	m->has_pending = false;
	if (!ret)
		ret = read_banner(m, err);
	return ret ? ret : read_size(m, err);
}

/* A number as C writes them, which is skipped. */
static int skip_value(struct soda_graph_text *t, struct soda_graph_error *err)
{
	char word[64], *end;

	soda_graph_text_skip_blanks(t);
	if (soda_graph_text_peek(t) <= ' ')
		return soda_graph_text_unexpected(t, "a value", err);
	soda_graph_text_word(t, word, sizeof(word));
	strtod(word, &end);
	if (*end)
		return soda_graph_fail(err, EINVAL, "%s:%" PRIu64 ": expected a value, found '%s'",
				       t->path, t->line, word);
	return 0;
}

/* weight_p: NULL: values are skipped. */
static int read_values(struct mtx *m, double *weight_p, struct soda_graph_error *err)
{
	int ret = 0;

	if (weight_p) {
		soda_graph_text_skip_blanks(m->text);
		return soda_graph_text_weight(m->text, weight_p, err);
	}
	for (unsigned i = 0; i < m->values && !ret; i++)
		ret = skip_value(m->text, err);
	return ret;
}

static int read_entry(struct mtx *m, struct soda_graph_edge *e, double *weight_p,
		      struct soda_graph_error *err)
{
	static const char *const expected[] = { "a row", "a column" };
	struct soda_graph_text *t = m->text;
	uint64_t index[2];
	int ret;

	skip_comments(t);
	if (soda_graph_text_peek(t) == SODA_GRAPH_TEXT_END)
		return soda_graph_fail(err, EINVAL,
				       "%s:%" PRIu64 ": cut off: expected %" PRIu64
				       " entries, found %" PRIu64,
				       t->path, t->line, m->entries, m->read);
	ret = read_numbers(t, expected, 2, m->source.vertices, index, err);
	if (!ret && (!index[0] || !index[1]))
		ret = soda_graph_fail(err, EINVAL,
				      "%s:%" PRIu64 ": expected rows and columns from 1, found 0",
				      t->path, t->line);
	if (!ret)
		ret = read_values(m, weight_p, err);
	if (!ret)
		ret = soda_graph_text_end_line(t, "the end of the line after an entry", err);
	if (ret)
		return ret;
	*e = (struct soda_graph_edge){ (uint32_t)(index[0] - 1), (uint32_t)(index[1] - 1) };
	m->read++;
	return 0;
}

static int expect_end(struct mtx *m, struct soda_graph_error *err)
{
	skip_comments(m->text);
	if (soda_graph_text_peek(m->text) == SODA_GRAPH_TEXT_END)
		return 0;
	return soda_graph_text_unexpected(m->text, "the end of the file after the last entry", err);
}

static long mtx_next(struct soda_graph_source *source, struct soda_graph_edge *edges, size_t max,
		     struct soda_graph_error *err)
{
	struct mtx *m = (struct mtx *)source;
	size_t count = 0;
	int ret;

	while (count < max && (m->has_pending || m->read < m->entries)) {
		struct soda_graph_edge *e = &edges[count];
		double *weight = source->weights ? &source->weights[count] : NULL;

		count++;
		if (m->has_pending) {
			*e = m->pending;
			if (weight)
				*weight = m->pending_weight;
			m->has_pending = false;
			continue;
		}
		ret = read_entry(m, e, weight, err);
		if (ret)
			return ret;
		m->pending_weight = weight ? *weight : 0;
		m->pending = (struct soda_graph_edge){ e->to, e->from };
		m->has_pending = m->mirrored && e->from != e->to;
	}
	if (count)
		return (long)count;
	ret = expect_end(m, err);
	return ret;
}

static double mtx_fraction(const struct soda_graph_source *source)
{
	return soda_graph_text_fraction(((const struct mtx *)source)->text);
}

static void mtx_close(struct soda_graph_source *source)
{
	struct mtx *m = (struct mtx *)source;

	soda_graph_text_close(m->text);
	free(m);
}

int soda_graph_mtx_open(const char *path, struct soda_graph_source **source_p,
			struct soda_graph_error *err)
{
	struct soda_graph_text *text;
	struct mtx *m;
	int ret = soda_graph_text_open(path, &text, err);

	if (ret)
		return ret;
	m = calloc(1, sizeof(*m));
	if (!m) {
		soda_graph_text_close(text);
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	}
	m->text = text;
	m->source = (struct soda_graph_source){ .format = "Matrix Market",
						.fraction = mtx_fraction,
						.rewind = mtx_rewind,
						.next = mtx_next,
						.close = mtx_close };
	/* The number of vertices must be known before the first pass. */
	ret = mtx_rewind(&m->source, err);
	if (ret) {
		mtx_close(&m->source);
		return ret;
	}
	m->source.symmetric = m->mirrored;
	m->source.weighable = m->values == 1 && !m->negated;
	*source_p = &m->source;
	return 0;
}
