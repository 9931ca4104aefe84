/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each figure shows.  They have the paper's numbers; what is not known of the paper's with
 * certainty is not claimed.
 */
#ifndef SODA_EVAL_FIGURE_H
#define SODA_EVAL_FIGURE_H

#include "eval_report.h"

/* A bar, and how far its repetitions spread; NAN: not measured. */
struct soda_eval_bar {
	double value, min, max;
};

enum soda_eval_quantity {
	SODA_EVAL_SPEEDUP,	  /* the reference's time in this one's */
	SODA_EVAL_TIME,		  /* this one's time in the reference's */
	SODA_EVAL_TRAFFIC,	  /* this one's bytes on the network in the reference's */
	SODA_EVAL_TRAFFIC_A_BYTE, /* bytes on the network for each that programs fetched */
	SODA_EVAL_HIT_RATE,	  /* of the dynamic cache's requests, per cent */
};

/* What the paper says of a mode, with certainty; in the unit of the axis, then in its words. */
struct soda_eval_claim {
	enum soda_eval_mode mode;
	const char *text;
};

struct soda_eval_figure {
	const char *id, *title, *axis, *text;
	enum soda_eval_quantity quantity;
	enum soda_eval_mode reference;
	unsigned series; /* a set of modes */
	uint32_t processes;
	bool by_kind;			 /* of traffic, stacked */
	struct soda_eval_claim paper[4]; /* ends with text NULL */
};

/* A mode's in all figures: "#rrggbb". */
extern const char *const soda_eval_mode_colours[SODA_EVAL_MODES];

enum { SODA_EVAL_FIGURES = 7 };
extern const struct soda_eval_figure soda_eval_figures[SODA_EVAL_FIGURES];

/* kind: graph, application and mode; the figure knows how many processes. */
struct soda_eval_bar soda_eval_figure_bar(const struct soda_eval_report *report,
					  const struct soda_eval_figure *figure,
					  const struct soda_eval_run *kind);
/* The least and the most of a mode's bars over graphs and applications; NAN: it has none. */
void soda_eval_figure_range(const struct soda_eval_report *report,
			    const struct soda_eval_figure *figure, enum soda_eval_mode mode,
			    double *least_p, double *most_p);
/* The parts of the bar, in the order of struct soda_eval_cell.kinds. */
void soda_eval_figure_kinds(const struct soda_eval_report *report,
			    const struct soda_eval_figure *figure, const struct soda_eval_run *kind,
			    double parts[4]);
/* Whether there is anything to be seen. */
bool soda_eval_figure_has_bars(const struct soda_eval_report *report,
			       const struct soda_eval_figure *figure);
/* The modes of the figure that were measured, in their order; returns how many. */
uint32_t soda_eval_figure_series(const struct soda_eval_report *report,
				 const struct soda_eval_figure *figure,
				 enum soda_eval_mode modes[SODA_EVAL_MODES]);

/*
 * eval_plot.c.  OUT/figures/ID.svg and .png of all figures that have bars.  What keeps it from
 * that is no error: report->no_figures says it.  0, or negative errno after a message.
 */
int soda_eval_plot_all(struct soda_eval_report *report);

#endif
