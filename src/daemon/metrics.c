/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions that walks call; each calls the writer, unless the writer has declined this list or
 * item.
 */
#include "daemon/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "daemon/metrics_impl.h"

void soda_metrics_number(struct soda_metrics *m, const struct soda_metric *metric, uint64_t value)
{
	if (!m->skipped)
		m->ops->number(m, metric, value);
}

void soda_metrics_real(struct soda_metrics *m, const struct soda_metric *metric, double value)
{
	if (!m->skipped)
		m->ops->real(m, metric, value);
}

void soda_metrics_flag(struct soda_metrics *m, const struct soda_metric *metric, bool value)
{
	if (!m->skipped)
		m->ops->flag(m, metric, value);
}

void soda_metrics_say(struct soda_metrics *m, enum soda_metric_kind kind,
		      enum soda_metric_unit unit, const char *key, const char *help, uint64_t value)
{
	const struct soda_metric metric = { .key = key, .help = help, .kind = kind, .unit = unit };

	soda_metrics_number(m, &metric, value);
}

void soda_metrics_say_flag(struct soda_metrics *m, const char *key, const char *help, bool value)
{
	const struct soda_metric metric = { .key = key, .help = help, .kind = SODA_METRIC_GAUGE };

	soda_metrics_flag(m, &metric, value);
}

void soda_metrics_say_real(struct soda_metrics *m, const char *key, const char *help, double value)
{
	const struct soda_metric metric = { .key = key, .help = help, .kind = SODA_METRIC_GAUGE };

	soda_metrics_real(m, &metric, value);
}

void soda_metrics_say_level(struct soda_metrics *m, const char *key, const char *help,
			    uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_NONE, key, help, value);
}

void soda_metrics_say_size(struct soda_metrics *m, const char *key, const char *help,
			   uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_BYTES, key, help, value);
}

void soda_metrics_histogram(struct soda_metrics *m, const struct soda_metric *metric,
			    const struct soda_histogram *h)
{
	if (!m->skipped)
		m->ops->histogram(m, metric, h);
}

void soda_metrics_text(struct soda_metrics *m, const char *key, const char *text)
{
	if (!m->skipped)
		m->ops->text(m, key, soda_metrics_is_utf8(text) ? text : "(not UTF-8)");
}

void soda_metrics_id(struct soda_metrics *m, const char *key, uint64_t number)
{
	if (!m->skipped)
		m->ops->id(m, key, number);
}

void soda_metrics_hex(struct soda_metrics *m, const char *key, uint64_t number, int digits)
{
	char text[20];

	snprintf(text, sizeof(text), "%0*" PRIx64, digits, number);
	soda_metrics_text(m, key, text);
}

void soda_metrics_process(struct soda_metrics *m, uint64_t started_ns)
{
	struct timespec used;

	soda_metrics_id(m, "pid", (uint64_t)getpid());
	soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_MS, "uptime_ms", "time since the start",
			 (soda_now_ns() - started_ns) / SODA_MS_NS);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_NS, "cpu_ns",
			 "processor time of all threads",
			 (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec);
}

void soda_metrics_list(struct soda_metrics *m, const struct soda_metric_list *list)
{
	assert(m->depth + 1 < SODA_METRICS_DEPTH);
	if (m->skipped || !m->ops->list(m, list))
		m->skipped++;
}

void soda_metrics_item(struct soda_metrics *m)
{
	if (m->skipped || !m->ops->item(m))
		m->skipped++;
	else
		m->depth++;
}

void soda_metrics_item_end(struct soda_metrics *m)
{
	if (m->skipped) {
		m->skipped--;
		return;
	}
	m->ops->item_end(m);
	m->depth--;
}

void soda_metrics_list_end(struct soda_metrics *m)
{
	if (m->skipped)
		m->skipped--;
	else
		m->ops->list_end(m);
}

static const char *unit_of(const struct soda_metric *metric)
{
	static const char *const units[] = {
		[SODA_UNIT_NONE] = "",
		[SODA_UNIT_BYTES] = "bytes",
		[SODA_UNIT_NS] = "ns",
		[SODA_UNIT_MS] = "ms",
	};

	return units[metric->unit];
}

void soda_metric_stem(const struct soda_metric *metric, char *out, size_t bytes)
{
	const char *unit = unit_of(metric), *key = metric->key;
	size_t n = strlen(key), k = strlen(unit);

	if (k && !strcmp(key, unit))
		snprintf(out, bytes, "size"); /* without the unit the name would be empty */
	else if (k && n > k + 1 && !strncmp(key, unit, k) && key[k] == '_')
		snprintf(out, bytes, "%s", key + k + 1);
	else if (k && n > k + 1 && !strcmp(key + n - k, unit) && key[n - k - 1] == '_')
		snprintf(out, bytes, "%.*s", (int)(n - k - 1), key);
	else
		snprintf(out, bytes, "%s", key);
}

/* How many bytes a character of UTF-8 has, by its first byte; 0: no character begins with it. */
static unsigned utf8_length(uint8_t first)
{
	if (first < 0x80)
		return 1;
	if (first >= 0xc2 && first < 0xe0)
		return 2;
	if ((first & 0xf0) == 0xe0)
		return 3;
	return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

bool soda_metrics_is_utf8(const char *text)
{
	const uint8_t *at = (const uint8_t *)text;

	while (*at) {
		unsigned n = utf8_length(*at);
		uint32_t code = n > 1 ? *at & (0x7fu >> n) : *at;

		for (unsigned i = 1; i < n; i++) {
			if ((at[i] & 0xc0) != 0x80)
				return false;
			code = code << 6 | (at[i] & 0x3f);
		}
		/* an overlong form, a surrogate, or beyond U+10FFFF */
		if (!n || (n == 3 && code < 0x800) || (n == 4 && code < 0x10000) ||
		    (code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
			return false;
		at += n;
	}
	return true;
}
