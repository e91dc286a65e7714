/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Windowed maximum or minimum in three samples (Kathleen Nichols' algorithm; Linux's win_minmax): the best, the best
 * after it, and the best after that. The later ones are refreshed after a quarter and a half of the window, so that
 * a successor exists when the best expires. Times and values are in the caller's units; times may wrap.
 *
 * A filter is used either as maximum or as minimum: minmax_restart() with its first sample, then
 * minmax_running_max() or minmax_running_min() with each later one; all return the best.
 */
#ifndef SKYHOP_MINMAX_H
#define SKYHOP_MINMAX_H

#include "skyhop_cc.h"

struct minmax_filter {
	struct {
		u32 t;
		u32 v;
	} best, second, third;
};

static inline u32 minmax_restart(struct minmax_filter *filter, u32 t, u32 v)
{
	filter->best.t = t;
	filter->best.v = v;
	filter->second = filter->third = filter->best;
	return v;
}

static inline bool minmax_is_better(bool is_max, u32 v, u32 than)
{
	return is_max ? v >= than : v <= than;
}

static inline u32 minmax_running(bool is_max, struct minmax_filter *filter, u32 window, u32 t, u32 v)
{
	struct minmax_filter sample;
	u32 age = t - filter->best.t;

	if (minmax_is_better(is_max, v, filter->best.v) || t - filter->third.t > window)
		return minmax_restart(filter, t, v);
	minmax_restart(&sample, t, v);
	if (minmax_is_better(is_max, v, filter->second.v))
		filter->second = filter->third = sample.best;
	else if (minmax_is_better(is_max, v, filter->third.v))
		filter->third = sample.best;

	if (age > window) {
		filter->best = filter->second;
		filter->second = filter->third;
		filter->third = sample.best;
		if (t - filter->best.t > window) {
			filter->best = filter->second;
			filter->second = filter->third;
		}
	} else if (filter->second.t == filter->best.t && age > window / 4) {
		filter->second = filter->third = sample.best;
	} else if (filter->third.t == filter->second.t && age > window / 2) {
		filter->third = sample.best;
	}
	return filter->best.v;
}

static inline u32 minmax_running_max(struct minmax_filter *filter, u32 window, u32 t, u32 v)
{
	return minmax_running(true, filter, window, t, v);
}

static inline u32 minmax_running_min(struct minmax_filter *filter, u32 window, u32 t, u32 v)
{
	return minmax_running(false, filter, window, t, v);
}

#endif
