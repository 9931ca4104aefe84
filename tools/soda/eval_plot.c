/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: the figures by gnuplot(1). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "eval_app.h"
#include "eval_figure.h"

enum { GNUPLOT_TIMEOUT_MS = 300000 };

static const char *const kind_titles[] = { "on demand", "prefetch", "write-back", "preload" };

static const char *const kind_colours[] = { "#4477aa", "#66ccee", "#228833", "#ccbb44" };

static void put_number(FILE *out, double value)
{
	if (isnan(value))
		fputs(" ?", out);
	else
		fprintf(out, " %.6g", value);
}

/* One graph's application, as an axis calls it; one word. */
static void put_label(FILE *out, const struct soda_eval_plan *plan, uint32_t graph, uint32_t app)
{
	if (plan->graphs_n > 1)
		fprintf(out, "%s/", plan->graphs[graph].name);
	fputs(soda_eval_app_names[app], out);
}

/* A line for each application; value, least and most of each mode. */
static void put_clusters(FILE *out, const struct soda_eval_report *report,
			 const struct soda_eval_figure *figure, const enum soda_eval_mode *modes,
			 uint32_t n)
{
	const struct soda_eval_plan *plan = report->plan;
	struct soda_eval_run kind = { 0 };

	for (kind.graph = 0; kind.graph < plan->graphs_n; kind.graph++)
		for (uint32_t a = 0; a < plan->apps_n; a++) {
			kind.app = plan->apps[a];
			put_label(out, plan, kind.graph, kind.app);
			for (uint32_t m = 0; m < n; m++) {
				struct soda_eval_bar bar;

				kind.mode = modes[m];
				bar = soda_eval_figure_bar(report, figure, &kind);
				put_number(out, bar.value);
				put_number(out, bar.min);
				put_number(out, bar.max);
			}
			fputc('\n', out);
		}
}

/* A block for each application, a line for each mode; the kinds. */
static void put_stacks(FILE *out, const struct soda_eval_report *report,
		       const struct soda_eval_figure *figure, const enum soda_eval_mode *modes,
		       uint32_t n)
{
	const struct soda_eval_plan *plan = report->plan;
	struct soda_eval_run kind = { 0 };

	for (kind.graph = 0; kind.graph < plan->graphs_n; kind.graph++)
		for (uint32_t a = 0; a < plan->apps_n; a++) {
			kind.app = plan->apps[a];
			for (uint32_t m = 0; m < n; m++) {
				double parts[4];

				kind.mode = modes[m];
				soda_eval_figure_kinds(report, figure, &kind, parts);
				fputs(soda_eval_mode_names[modes[m]], out);
				for (int i = 0; i < 4; i++)
					put_number(out, parts[i]);
				fputc('\n', out);
			}
			fputs("\n\n", out);
		}
}

static void put_settings(FILE *out, const struct soda_eval_figure *figure)
{
	fprintf(out,
		"set encoding utf8\nset title '%s' noenhanced\nset ylabel '%s' noenhanced\n"
		"set datafile missing '?'\nset style data histogram\nset style fill solid 0.9 "
		"border rgb '#333333'\nset boxwidth 0.9 relative\nset yrange [0:*]\n"
		"set grid ytics lc rgb '#dddddd'\nset xtics noenhanced nomirror scale 0\nset ytics "
		"nomirror\nset border 3\n"
		"set key outside bottom center horizontal noenhanced\n",
		figure->title, figure->axis);
	if (figure->quantity != SODA_EVAL_HIT_RATE)
		fputs("set arrow from graph 0, first 1 to graph 1, first 1 nohead dt 2 lc rgb "
		      "'#333333' front\n",
		      out);
}

/* The names of graphs make the labels of an axis long. */
static void put_cluster_plot(FILE *out, const struct soda_eval_plan *plan, const char *data,
			     const enum soda_eval_mode *modes, uint32_t n)
{
	fprintf(out, "set style histogram errorbars gap 1.5 lw 1\nset xtics %s\nplot",
		plan->graphs_n > 1 ? "rotate by -20" : "norotate");
	for (uint32_t m = 0; m < n; m++)
		fprintf(out, "%s '%s' using %u:%u:%u:xtic(1) title '%s' lc rgb '%s'", m ? "," : "",
			data, 3 * m + 2, 3 * m + 3, 3 * m + 4, soda_eval_mode_names[modes[m]],
			soda_eval_mode_colours[modes[m]]);
	fputc('\n', out);
}

static void put_stack_plot(FILE *out, const struct soda_eval_plan *plan, const char *data)
{
	uint32_t index = 0;

	fputs("set style histogram rowstacked gap 1 title offset 0,-1.5\nset bmargin 7\n"
	      "set key outside right top vertical\n"
	      "set xtics rotate by -60 font ',9'\nplot",
	      out);
	for (uint32_t g = 0; g < plan->graphs_n; g++)
		for (uint32_t a = 0; a < plan->apps_n; a++, index++) {
			fprintf(out, "%s newhistogram '", index ? "," : "");
			put_label(out, plan, g, plan->apps[a]);
			fputc('\'', out);
			for (int k = 0; k < 4; k++)
				fprintf(out, ", '%s' index %u using %d:xtic(1) %s%s%s lc rgb '%s'",
					data, index, k + 2, index ? "notitle" : "title '",
					index ? "" : kind_titles[k], index ? "" : "'",
					kind_colours[k]);
		}
	fputc('\n', out);
}

static void put_terminals(FILE *out, const struct soda_eval_figure *figure, const char *data,
			  const struct soda_eval_plan *plan, const enum soda_eval_mode *modes,
			  uint32_t n)
{
	static const char *const terminals[][2] = {
		{ "svg", "svg size 960,460 font 'sans,13' background rgb 'white'" },
		{ "png", "pngcairo size 1440,690 font 'sans,14' background rgb 'white'" },
	};

	for (int i = 0; i < 2; i++) {
		fprintf(out, "set terminal %s\nset output '%s.%s'\n", terminals[i][1], figure->id,
			terminals[i][0]);
		if (figure->by_kind)
			put_stack_plot(out, plan, data);
		else
			put_cluster_plot(out, plan, data, modes, n);
		fputs("unset output\n", out);
	}
}

/* ID.dat and ID.gp, which anybody may run again. */
static int write_figure(const struct soda_eval_report *report,
			const struct soda_eval_figure *figure)
{
	enum soda_eval_mode modes[SODA_EVAL_MODES];
	uint32_t n = soda_eval_figure_series(report, figure, modes);
	char name[64], data[64];
	int err = -EIO;
	FILE *out;

	snprintf(data, sizeof(data), "%s.dat", figure->id);
	snprintf(name, sizeof(name), "figures/%s.dat", figure->id);
	out = soda_eval_create(report->plan, name);
	if (!out)
		return err;
	if (figure->by_kind)
		put_stacks(out, report, figure, modes, n);
	else
		put_clusters(out, report, figure, modes, n);
	err = soda_eval_finish(report->plan, name, out);
	snprintf(name, sizeof(name), "figures/%s.gp", figure->id);
	out = err ? NULL : soda_eval_create(report->plan, name);
	if (!out)
		return -EIO;
	put_settings(out, figure);
	put_terminals(out, figure, data, report->plan, modes, n);
	return soda_eval_finish(report->plan, name, out);
}

/* In the figures' folder. */
static int run_gnuplot(const struct soda_eval_report *report, const char *id, const char *log)
{
	char script[64], folder[PATH_MAX + 16];
	const char *const args[] = { "env", "-C", folder, "gnuplot", script, NULL };

	snprintf(script, sizeof(script), "%s.gp", id);
	snprintf(folder, sizeof(folder), "%s/figures", report->plan->out);
	return soda_eval_exec(args, log, GNUPLOT_TIMEOUT_MS);
}

static void explain(struct soda_eval_report *report, int status, const char *log)
{
	char line[160];

	soda_eval_last_line(log, line, sizeof(line));
	if (status == -ENOENT)
		snprintf(report->no_figures, sizeof(report->no_figures),
			 "There are no figures, because gnuplot is not installed (package "
			 "gnuplot-nox); the same command draws them once it is.");
	else
		snprintf(report->no_figures, sizeof(report->no_figures),
			 "There are no figures, because gnuplot failed (status %d): %s", status,
			 line);
	fprintf(stderr, "soda eval: %s\n", report->no_figures);
}

int soda_eval_plot_all(struct soda_eval_report *report)
{
	char folder[PATH_MAX + 16], log[PATH_MAX + 32];
	int err = 0, status;

	snprintf(folder, sizeof(folder), "%s/figures", report->plan->out);
	snprintf(log, sizeof(log), "%s/gnuplot.log", folder);
	if (mkdir(folder, 0755) && errno != EEXIST) {
		fprintf(stderr, "soda eval: %s: %s\n", folder, strerror(errno));
		return -errno;
	}
	for (int i = 0; i < SODA_EVAL_FIGURES && !err; i++) {
		const struct soda_eval_figure *figure = &soda_eval_figures[i];

		if (!soda_eval_figure_has_bars(report, figure))
			continue;
		err = write_figure(report, figure);
		status = err || report->no_figures[0] ? 0 : run_gnuplot(report, figure->id, log);
		if (status)
			explain(report, status, log);
	}
	remove(log);
	return err;
}
