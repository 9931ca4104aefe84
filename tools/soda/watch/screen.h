/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda top` on a terminal, by ncurses. */
#ifndef SODA_TOP_SCREEN_H
#define SODA_TOP_SCREEN_H

#include "soda/watch/frame.h"

/*
 * Show and obey keys until the user leaves, the terminal goes or a signal (INT, TERM, HUP) says
 * so; the terminal is then as it was.  The calling thread is the one that gets signals.
 * 0; -ENOTTY: no terminal, or none that ncurses knows; -ENOMEM; -ENOTSUP: built without ncurses.
 */
int soda_top_screen_run(struct soda_top_ui *ui, bool utf8);

#endif
