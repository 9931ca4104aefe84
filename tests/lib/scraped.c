/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/scrape.h"

/* What is served may be a fifth of a second old. */
const char *scraped(unsigned port)
{
	const char *text;

	usleep(250000);
	assert_int_equal(http_get(port, "/metrics", &text), 200);
	if (prom_check(text) < 0)
		fail_msg("%s", text);
	return text;
}

double scraped_value(const char *text, const char *series)
{
	double found = -1;

	if (!prom_value(text, series, &found))
		fail_msg("no %s in\n%s", series, text);
	return found;
}
