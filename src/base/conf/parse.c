/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parses sizes and times as users write them.  Whole numbers only: "1.5G" and "-1" are errors.
 */
#include "base/conf/conf.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Parse the digits at *text_p, which is moved behind them. 0, -EINVAL (no digit), -ERANGE. */
static int parse_digits(const char **text_p, uint64_t *value_p)
{
	const char *text = *text_p;
	uint64_t value = 0;
	bool over = false;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	for (; isdigit((unsigned char)*text); text++)
		over |= __builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*text - '0'), &value);
	*text_p = text;
	if (over)
		return -ERANGE;
	*value_p = value;
	return 0;
}

/* The unit behind a size: "", B, K, KB, KiB, ... as a shift; -EINVAL. */
static int size_shift(const char *unit)
{
	static const char letters[] = "KMGT";
	const char *letter;

	if (!*unit || !strcasecmp(unit, "B"))
		return 0;
	letter = strchr(letters, toupper((unsigned char)*unit));
	if (!letter || (unit[1] && strcasecmp(unit + 1, "B") && strcasecmp(unit + 1, "iB")))
		return -EINVAL;
	return 10 * (int)(letter - letters + 1);
}

int soda_parse_size(const char *text, uint64_t *bytes_p)
{
	uint64_t value = 0;
	int r = parse_digits(&text, &value), shift;

	if (r == -EINVAL)
		return r;
	shift = size_shift(text);
	if (shift < 0)
		return shift;
	if (r || value > UINT64_MAX >> shift)
		return -ERANGE;
	*bytes_p = value << shift;
	return 0;
}

int soda_parse_time_ms(const char *text, uint32_t *ms_p)
{
	static const struct {
		const char *unit;
		uint32_t ms;
	} units[] = { { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 } };
	uint64_t value = 0;
	int r = parse_digits(&text, &value);

	if (r == -EINVAL)
		return r;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(text, units[i].unit))
			continue;
		/* UINT32_MAX itself means "off". */
		if (r || value > (UINT32_MAX - 1) / units[i].ms)
			return -ERANGE;
		*ms_p = (uint32_t)value * units[i].ms;
		return 0;
	}
	return -EINVAL;
}

char *soda_format_size(uint64_t bytes, char out[16])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	size_t unit = 0;
	uint64_t tenths = 0;

	while (bytes >= 1024 && unit < 6) {
		tenths = bytes % 1024 * 10 / 1024;
		bytes /= 1024;
		unit++;
	}
	if (tenths)
		snprintf(out, 16, "%u.%u %s", (unsigned)bytes, (unsigned)tenths, units[unit]);
	else
		snprintf(out, 16, "%u %s", (unsigned)bytes, units[unit]);
	return out;
}
