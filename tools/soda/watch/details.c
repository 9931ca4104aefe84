/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/watch/frame.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "soda/watch/views.h"

enum { LABEL = 2, VALUE = 20, GRAPH = 34, VALUE_WIDTH = 12 };

/* "3 d 4 h": two units are enough. */
static void format_age(double ms, char out[SODA_TOP_TEXT])
{
	long s = (long)(ms / 1000);

	if (s < 120)
		snprintf(out, SODA_TOP_TEXT, "%ld s", s);
	else if (s < 7200)
		snprintf(out, SODA_TOP_TEXT, "%ld min", s / 60);
	else if (s < 172800)
		snprintf(out, SODA_TOP_TEXT, "%ld h %ld min", s / 3600, s % 3600 / 60);
	else
		snprintf(out, SODA_TOP_TEXT, "%ld d %ld h", s / 86400, s % 86400 / 3600);
}

static void draw_title(struct soda_top_canvas *c, int row, const struct soda_top_target *t)
{
	const json_t *now = t->pair.now.counters;
	double uptime = soda_top_gauge(&t->pair, "uptime_ms");
	char age[SODA_TOP_TEXT];
	int at = soda_top_put(c, row, 0, SODA_TOP_STRONG, "%s", t->label);

	if (t->view)
		at = soda_top_put(c, row, at, SODA_TOP_PLAIN, "  %s %s", t->view->name,
				  soda_top_text(now, "version", ""));
	if (isfinite(uptime)) {
		format_age(uptime, age);
		at = soda_top_put(c, row, at, SODA_TOP_PLAIN, ", up %s", age);
	}
	if (json_is_true(json_object_get(now, "draining")))
		at = soda_top_put(c, row, at, SODA_TOP_BAD, ", draining");
	if (*soda_top_text(now, "server", ""))
		soda_top_put(c, row, at, SODA_TOP_PLAIN, ", for %s",
			     soda_top_text(now, "server", ""));
}

/* One time after another: p50, p90, p99, p99.9 of what happened since the last look. */
static void draw_latency(struct soda_top_canvas *c, int row, const struct soda_top_row *what,
			 const struct soda_top_target *t, int index)
{
	static const struct {
		const char *name;
		double percent;
	} points[] = { { "p50", 50 }, { "p90", 90 }, { "p99", 99 }, { "p99.9", 99.9 } };
	static struct soda_histogram h; /* static: only one thread draws */
	char text[SODA_TOP_TEXT];
	int at = VALUE;

	memset(&h, 0, sizeof(h));
	if (!soda_top_recorded(&t->pair, what->expr, &h) || !soda_histogram_count(&h)) {
		soda_top_put(c, row, VALUE + VALUE_WIDTH - 1, SODA_TOP_FAINT, "-");
		return;
	}
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		soda_top_format_time((double)soda_histogram_percentile(&h, points[i].percent),
				     text);
		at = soda_top_put(c, row, at, SODA_TOP_FAINT, "%s ", points[i].name);
		at = soda_top_put(c, row, at, SODA_TOP_PLAIN, "%-9s", text) + 1;
	}
	if (c->columns - at > 20)
		soda_top_spark(c, row, at, c->columns - at - 1, t->history[index], t->history_n);
}

static void draw_full(struct soda_top_canvas *c, int row, const struct soda_top_row *what,
		      const struct soda_top_target *t)
{
	double is = soda_top_gauge(&t->pair, what->expr);
	double of = soda_top_gauge(&t->pair, what->whole);
	int width = c->columns - GRAPH - 14;
	char text[SODA_TOP_TEXT];

	soda_top_format_bytes(of, text);
	soda_top_bar(c, row, GRAPH, width > 60 ? 60 : width, of > 0 ? is / of : 0);
	soda_top_put(c, row, GRAPH + (width > 60 ? 60 : width) + 1, SODA_TOP_PLAIN, "of %s", text);
}

static bool is_shown(const struct soda_top_row *row, const struct soda_top_target *t)
{
	if (row->kind == SODA_TOP_LATENCY)
		return json_object_get(t->pair.now.counters, row->expr);
	return !row->expr || isfinite(soda_top_gauge(&t->pair, row->expr));
}

/* Whether the row counts what should never happen, and it has happened. */
static bool is_trouble(const struct soda_top_row *row, double value)
{
	return row->help && strstr(row->help, "hould be 0") && value > 0;
}

static void draw_row(struct soda_top_canvas *c, int row, const struct soda_top_target *t, int index)
{
	const struct soda_top_row *what = &t->view->rows[index];
	double value = t->values[index];
	char text[SODA_TOP_TEXT];

	soda_top_put(c, row, LABEL, SODA_TOP_PLAIN, "%s", what->label);
	if (what->kind == SODA_TOP_LATENCY) {
		draw_latency(c, row, what, t, index);
		return;
	}
	soda_top_format(what->kind, value, text);
	soda_top_put(c, row, VALUE, is_trouble(what, value) ? SODA_TOP_BAD : SODA_TOP_STRONG, "%*s",
		     VALUE_WIDTH, text);
	if (what->kind == SODA_TOP_FULL)
		draw_full(c, row, what, t);
	else
		soda_top_spark(c, row, GRAPH, c->columns - GRAPH - 1, t->history[index],
			       t->history_n);
}

/* Clients */

static const struct client_column {
	const char *head, *key;
	enum soda_top_kind kind;
	int width;
} client_columns[] = {
	{ "PID", "pid", SODA_TOP_LEVEL, 8 },
	{ "REGIONS", "regions_n", SODA_TOP_LEVEL, 8 },
	{ "MEMORY", "used_bytes", SODA_TOP_SIZE, 10 },
	{ "QUEUED", "reads_queued", SODA_TOP_LEVEL, 8 },
	{ "UNDER WAY", "read_bytes_under_way", SODA_TOP_SIZE, 10 },
	{ "UNWRITTEN", "unwritten_bytes", SODA_TOP_SIZE, 10 },
};

enum { CLIENT_COLUMNS = sizeof(client_columns) / sizeof(client_columns[0]), CLIENTS_MAX = 1024 };

static double weight(const json_t *client)
{
	return json_number_value(json_object_get(client, "used_bytes")) +
	       json_number_value(json_object_get(client, "unwritten_bytes"));
}

static int heavier(const void *a, const void *b)
{
	double x = weight(*(json_t *const *)a), y = weight(*(json_t *const *)b);

	return x < y ? 1 : x > y ? -1 : 0;
}

static void draw_client(struct soda_top_canvas *c, int row, const json_t *client)
{
	bool here = json_is_true(json_object_get(client, "connected"));
	char text[SODA_TOP_TEXT];
	int at = 34;

	soda_top_put(c, row, LABEL, SODA_TOP_PLAIN, "%.30s", soda_top_text(client, "address", "?"));
	for (int i = 0; i < CLIENT_COLUMNS; i++) {
		const json_t *value = json_object_get(client, client_columns[i].key);

		if (!value)
			continue;
		if (client_columns[i].kind == SODA_TOP_SIZE)
			soda_top_format_bytes(json_number_value(value), text);
		else /* a process id is no "12.3k" */
			snprintf(text, sizeof(text), "%.0f", json_number_value(value));
		soda_top_put(c, row, at, SODA_TOP_PLAIN, "%*s", client_columns[i].width, text);
		at += client_columns[i].width + 1;
	}
	soda_top_put(c, row, at + 1, here ? SODA_TOP_GOOD : SODA_TOP_BAD, here ? "here" : "away");
}

static int draw_clients(struct soda_top_canvas *c, int row, const struct soda_top_target *t)
{
	const json_t *list = json_object_get(t->pair.now.counters, "client_list");
	static const json_t *sorted[CLIENTS_MAX]; /* static: only one thread draws */
	size_t n = json_array_size(list);
	int at = 34;

	if (!n)
		return row;
	n = n < CLIENTS_MAX ? n : CLIENTS_MAX;
	for (size_t i = 0; i < n; i++)
		sorted[i] = json_array_get(list, i);
	qsort(sorted, n, sizeof(sorted[0]), heavier);
	soda_top_put(c, row, LABEL - 1, SODA_TOP_FAINT, "Clients");
	for (int i = 0; i < CLIENT_COLUMNS; i++) {
		if (!json_object_get(sorted[0], client_columns[i].key))
			continue;
		soda_top_put(c, row, at, SODA_TOP_FAINT, "%*s", client_columns[i].width,
			     client_columns[i].head);
		at += client_columns[i].width + 1;
	}
	for (size_t i = 0; i < n; i++)
		draw_client(c, ++row, sorted[i]);
	return row + 1;
}

/* Servers of a program's pool */

static void draw_server(struct soda_top_canvas *c, int row, const json_t *server)
{
	const char *state = soda_top_text(server, "state", "?");
	bool up = !strcmp(state, "up");
	char text[SODA_TOP_TEXT];

	soda_top_put(c, row, LABEL, SODA_TOP_PLAIN, "%.30s", soda_top_text(server, "address", "?"));
	soda_top_put(c, row, 34, SODA_TOP_PLAIN, "%-12.12s", soda_top_text(server, "domain", ""));
	soda_top_put(c, row, 47, SODA_TOP_PLAIN, "%7.0f",
		     json_number_value(json_object_get(server, "slabs_here")));
	soda_top_format_bytes(json_number_value(json_object_get(server, "free_bytes")), text);
	soda_top_put(c, row, 55, SODA_TOP_PLAIN, "%10s", text);
	if (up && json_is_true(json_object_get(server, "draining")))
		state = "draining";
	soda_top_put(c, row, 67, up ? SODA_TOP_GOOD : SODA_TOP_BAD, "%s", state);
}

static int draw_servers(struct soda_top_canvas *c, int row, const struct soda_top_target *t)
{
	const json_t *list = json_object_get(t->pair.now.counters, "server_list"), *server;
	size_t i;

	if (!json_array_size(list))
		return row;
	soda_top_put(c, row, LABEL - 1, SODA_TOP_FAINT, "Servers");
	soda_top_put(c, row, 34, SODA_TOP_FAINT, "%-12s %7s %10s", "DOMAIN", "SLABS", "FREE");
	json_array_foreach(list, i, server) draw_server(c, ++row, server);
	return row + 1;
}

/* The whole */

/* Words of a sentence, broken at blanks. Returns the row behind it. */
static int put_wrapped(struct soda_top_canvas *c, int row, int column, const char *text)
{
	size_t width = c->columns > column + 20 ? (size_t)(c->columns - column - 1) : 20;

	while (*text) {
		size_t n = strlen(text);

		if (n > width) {
			n = width;
			while (n && text[n] != ' ')
				n--;
			n = n ? n : width;
		}
		soda_top_put(c, row++, column, SODA_TOP_PLAIN, "%.*s", (int)n, text);
		text += n;
		text += *text == ' ';
	}
	return row;
}

/* Whether nothing under the heading in row `i` has a value but 0. */
static bool is_still(const struct soda_top_target *t, int i)
{
	while (++i < (int)t->view->rows_n && t->view->rows[i].kind != SODA_TOP_HEADING)
		if (is_shown(&t->view->rows[i], t) && isfinite(t->values[i]) && t->values[i] != 0)
			return false;
	return true;
}

/* The rows under the heading in row `i`, if the target has any; returns the row behind them. */
static int draw_group(struct soda_top_canvas *c, int row, const struct soda_top_target *t, int i)
{
	const char *heading = t->view->rows[i].label;

	while (++i < (int)t->view->rows_n && t->view->rows[i].kind != SODA_TOP_HEADING) {
		if (!is_shown(&t->view->rows[i], t))
			continue;
		if (heading) /* of something that is there */
			soda_top_put(c, row++, LABEL - 1, SODA_TOP_FAINT, "%s", heading);
		heading = NULL;
		draw_row(c, row++, t, i);
	}
	return row;
}

/* Whether the target has anything under the heading in row `i`. */
static bool has_group(const struct soda_top_target *t, int i)
{
	while (++i < (int)t->view->rows_n && t->view->rows[i].kind != SODA_TOP_HEADING)
		if (is_shown(&t->view->rows[i], t))
			return true;
	return false;
}

static int draw_groups(struct soda_top_canvas *c, int row, const struct soda_top_target *t)
{
	char still[256] = "";

	for (int i = 0; i < (int)t->view->rows_n; i++) {
		size_t n = strlen(still);

		if (t->view->rows[i].kind != SODA_TOP_HEADING || !has_group(t, i))
			continue;
		if (!c->brief || !is_still(t, i))
			row = draw_group(c, row, t, i);
		else
			snprintf(still + n, sizeof(still) - n, "%s%s",
				 n ? ", " : "all 0: ", t->view->rows[i].label);
	}
	return put_wrapped(c, row, LABEL - 1, still);
}

int soda_top_details(struct soda_top_canvas *c, int row, const struct soda_top_target *t)
{
	draw_title(c, row++, t);
	if (t->state == SODA_TOP_GONE) {
		soda_top_put(c, row, LABEL, SODA_TOP_BAD, "gone");
		row = put_wrapped(c, row, LABEL + 6, t->why.text);
	} else if (t->state == SODA_TOP_ASKING)
		soda_top_put(c, row++, LABEL, SODA_TOP_FAINT, "no answer yet");
	if (t->state != SODA_TOP_HERE)
		return row;
	row = draw_groups(c, row, t);
	return draw_clients(c, draw_servers(c, row, t), t);
}

int soda_top_explain(struct soda_top_canvas *c, int row, const struct soda_top_target *t)
{
	draw_title(c, row++, t);
	for (int i = 0; t->view && i < (int)t->view->rows_n; i++) {
		const struct soda_top_row *what = &t->view->rows[i];

		if (what->kind == SODA_TOP_HEADING) {
			soda_top_put(c, row++, LABEL - 1, SODA_TOP_FAINT, "%s", what->label);
			continue;
		}
		soda_top_put(c, row, LABEL, SODA_TOP_STRONG, "%s", what->label);
		row = put_wrapped(c, row, VALUE, what->help);
	}
	return row;
}
