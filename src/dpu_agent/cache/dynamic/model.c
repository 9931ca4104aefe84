/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/dynamic/model.h"

enum { WEIGHT = 16 };
#define SPARED_MAX 0.25

/* A sample that gets lost between two threads is one of many: no compare-and-swap. */
void soda_rate_note(struct soda_rate *rate, uint64_t bytes, uint64_t ns)
{
	uint64_t old = atomic_load_explicit(&rate->bytes_per_s, memory_order_relaxed);
	uint64_t n = atomic_fetch_add_explicit(&rate->samples, 1, memory_order_relaxed);
	double sample = (double)bytes * 1e9 / (double)(ns ? ns : 1);
	double weight = n + 1 < WEIGHT ? 1.0 / (double)(n + 1) : 1.0 / WEIGHT;
	double mean = old ? (double)old + (sample - (double)old) * weight : sample;

	atomic_store_explicit(&rate->bytes_per_s, mean < 1 ? 1 : (uint64_t)mean,
			      memory_order_relaxed);
}

uint64_t soda_rate_get(const struct soda_rate *rate)
{
	return atomic_load_explicit(&rate->bytes_per_s, memory_order_relaxed);
}

double soda_model_ratio(const struct soda_model_rates *rates)
{
	uint64_t net = soda_rate_get(&rates->net), intra = soda_rate_get(&rates->intra);

	return net && intra ? (double)net / (double)intra : -1;
}

static void turn(struct soda_model *m, bool on)
{
	m->on = on;
	m->credit = m->waste = 0;
	if (on) {
		m->switched_on++;
	} else {
		m->switched_off++;
		if (m->on_windows >= SODA_MODEL_SOON)
			m->penalty = 0;
		m->hold = m->penalty;
		m->penalty = m->penalty ? m->penalty * 2 : 1;
		if (m->penalty > SODA_MODEL_HOLD_MAX)
			m->penalty = SODA_MODEL_HOLD_MAX;
	}
	m->windows = m->on_windows = 0;
}

/* The window's shares into the means. */
static void measure(struct soda_model *m, const struct soda_model_rates *rates)
{
	double hit = m->hit / m->asked, waste = (m->fetched - m->hit) / m->asked;

	m->hit_rate += (hit - m->hit_rate) / (m->windows == 1 ? 1 : 2);
	m->waste += (waste - m->waste) / SODA_MODEL_FADE;
	/* What an old working set has saved is no licence to waste. */
	if (m->waste < -SPARED_MAX)
		m->waste = -SPARED_MAX;
	m->gain = m->hit_rate - (m->waste > 0 ? m->waste : 0);
	m->ratio = soda_model_ratio(rates);
	m->asked = m->hit = m->fetched = 0;
}

static bool decide(struct soda_model *m)
{
	if (m->ratio < 0)
		return false;
	if (m->on && m->gain < m->ratio) {
		turn(m, false);
		return true;
	}
	if (!m->on && !m->hold && m->gain > m->ratio + SODA_MODEL_MARGIN) {
		turn(m, true);
		return true;
	}
	return false;
}

static double charge(struct soda_model *m, double fetched)
{
	double free_of_charge = fetched < m->credit ? fetched : m->credit;

	m->credit -= free_of_charge;
	return fetched - free_of_charge;
}

bool soda_model_note(struct soda_model *m, const struct soda_model_rates *rates, uint64_t asked,
		     uint64_t hit, uint64_t fetched)
{
	m->asked += (double)asked;
	m->hit += (double)hit;
	m->fetched += charge(m, (double)fetched);
	if (++m->requests < SODA_MODEL_WINDOW)
		return false;
	m->requests = 0;
	m->windows++;
	if (m->on)
		m->on_windows++;
	if (m->hold)
		m->hold--;
	measure(m, rates);
	return decide(m);
}

void soda_model_credit(struct soda_model *model, uint64_t bytes)
{
	model->credit += (double)bytes;
}
