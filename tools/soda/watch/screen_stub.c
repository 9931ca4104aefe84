/* SPDX-License-Identifier: BSD-3-Clause */
/* screen.h in a build without ncurses. */
#include <errno.h>

#include "soda/watch/frame.h"

int soda_top_screen_run(struct soda_top_ui *ui, bool utf8)
{
	return -ENOTSUP;
}
