/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/watch/views.h"

#include <math.h>
#include <stdio.h>

static void scaled(double value, double step, const char *const *units, unsigned units_n,
		   char out[SODA_TOP_TEXT])
{
	unsigned u = 0;

	if (!isfinite(value)) {
		snprintf(out, SODA_TOP_TEXT, "-");
		return;
	}
	/* 999.6 of one unit is 1.0 of the next, and not 1000 */
	while (u + 1 < units_n && fabs(value) >= step - 0.5) {
		value /= step;
		u++;
	}
	if (fabs(value) < 99.95 && value != floor(value))
		snprintf(out, SODA_TOP_TEXT, "%.1f%s", value, units[u]);
	else
		snprintf(out, SODA_TOP_TEXT, "%.0f%s", value, units[u]);
}

void soda_top_format_count(double value, char out[SODA_TOP_TEXT])
{
	static const char *const units[] = { "", "k", "M", "G", "T" };

	scaled(value, 1000, units, 5, out);
}

void soda_top_format_bytes(double value, char out[SODA_TOP_TEXT])
{
	static const char *const units[] = { " B", " KiB", " MiB", " GiB", " TiB", " PiB" };

	scaled(value, 1024, units, 6, out);
}

void soda_top_format_time(double ns, char out[SODA_TOP_TEXT])
{
	static const char *const units[] = { " ns", " us", " ms", " s" };

	scaled(ns, 1000, units, 4, out);
}

void soda_top_format(enum soda_top_kind kind, double value, char out[SODA_TOP_TEXT])
{
	char text[SODA_TOP_TEXT];

	if (!isfinite(value)) {
		snprintf(out, SODA_TOP_TEXT, "-");
		return;
	}
	switch (kind) {
	case SODA_TOP_COUNT:
		soda_top_format_count(value, text);
		snprintf(out, SODA_TOP_TEXT, "%.20s/s", text);
		break;
	case SODA_TOP_BYTES:
		soda_top_format_bytes(value, text);
		snprintf(out, SODA_TOP_TEXT, "%.20s/s", text);
		break;
	case SODA_TOP_CPU:
	case SODA_TOP_SHARE:
		snprintf(out, SODA_TOP_TEXT, value < 99.95 ? "%.1f %%" : "%.0f %%", value);
		break;
	case SODA_TOP_SIZE:
	case SODA_TOP_FULL:
		soda_top_format_bytes(value, out);
		break;
	case SODA_TOP_TIME:
	case SODA_TOP_LATENCY:
		soda_top_format_time(value, out);
		break;
	default:
		soda_top_format_count(value, out);
	}
}
