/* SPDX-License-Identifier: BSD-3-Clause */
/* top_screen.h in a build without ncurses. */
#include <errno.h>

#include "top_screen.h"

int soda_top_screen_run(struct soda_top_ui *ui, bool utf8)
{
	return -ENOTSUP;
}
