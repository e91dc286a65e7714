/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * CUBIC (RFC 9438) as Linux runs it, for the modules built on it: its curve, its slow start with HyStart instead of
 * HyStart++, and when each applies.
 *
 * A module's state contains a `struct cubic`, its hooks call the functions cubic_...() below, its parameter table
 * includes CUBIC_PARAMS(P), and its init hook passes their values: cubic_start(sk, cubic, &CUBIC_CONFIG).
 */
#ifndef SKYHOP_CUBIC_CORE_H
#define SKYHOP_CUBIC_CORE_H

#include "cubic_curve.h"
#include "hystart.h"

#define CUBIC_PARAMS(P)                                                                                   \
	P(beta, CUBIC_BETA_ONE, 717, 512, 1023, "", "factor of cwnd after a loss")                       \
	P(c, CUBIC_C_ONE, 410, 16, 1024, "", "steepness C of the cubic curve, packets per cubic second") \
	P(fast_convergence, 1, 1, 0, 1, "", "1: release bandwidth to new flows after consecutive reductions") \
	P(friendliness, 1, 1, 0, 1, "", "1: grow at least as fast as Reno (TCP friendliness)")           \
	P(initial_ssthresh, 1, 0, 0, 0x7fffffff, "packets", "initial slow-start threshold; 0: none")     \
	P(hystart, 1, 1, 0, 1, "", "1: leave slow start before the first loss (HyStart)")                \
	P(hystart_detect, 1, 3, 1, 3, "", "HyStart triggers: 1: ACK train, 2: delay, 3: both")           \
	P(hystart_low_window, 1, 16, 2, 0x7fffffff, "packets", "smallest cwnd at which HyStart acts")    \
	P(hystart_ack_delta, 1, 2000, 1, 1000000, "us", "largest gap between ACKs of one train")         \
	P(hystart_all_samples, 1, 1, 0, 1, "", "0: use only the first 8 RTT samples of a round, as Linux up to 5.4")

struct cubic_config {
	struct cubic_curve_config curve;
	struct hystart_config hystart;
	u64 initial_ssthresh;
};

/* Parameter values for the `sk` in scope. */
#define CUBIC_CONFIG                                                                                      \
	((struct cubic_config){                                                                           \
		.curve = { skyhop_param(sk, beta), skyhop_param(sk, c),                                   \
			   skyhop_param(sk, fast_convergence), skyhop_param(sk, friendliness) },          \
		.hystart = { skyhop_param(sk, hystart), skyhop_param(sk, hystart_detect),                 \
			     skyhop_param(sk, hystart_low_window), skyhop_param(sk, hystart_ack_delta),   \
			     skyhop_param(sk, hystart_all_samples) },                                     \
		.initial_ssthresh = skyhop_param(sk, initial_ssthresh),                                   \
	})

struct cubic {
	struct cubic_curve curve;
	struct hystart hystart;
	u32 least_rtt_us; /* 0: no sample yet */
};

/* Called in set_state for TCP_CA_Loss: slow start begins again, and HyStart with it. */
static inline void cubic_forget(struct sock *sk, struct cubic *cubic)
{
	cubic_curve_forget(&cubic->curve);
	hystart_restart(sk, &cubic->hystart);
	cubic->least_rtt_us = 0;
}

/* Called in init. */
static inline void cubic_start(struct sock *sk, struct cubic *cubic, const struct cubic_config *config)
{
	cubic->curve.config = config->curve;
	cubic->hystart.config = config->hystart;
	cubic_forget(sk, cubic);
	if (!config->hystart.is_on && config->initial_ssthresh)
		tcp_sk(sk)->snd_ssthresh = (u32)config->initial_ssthresh;
}

/* Called in cong_avoid; `k_divisor` as in cubic_curve_grow(). */
static inline void cubic_grow(struct sock *sk, struct cubic *cubic, u32 acked, u32 k_divisor)
{
	/* an unused window does not grow (RFC 9438 5.8) */
	if (!tcp_is_cwnd_limited(sk))
		return;
	if (tcp_in_slow_start(tcp_sk(sk))) {
		acked = tcp_slow_start(tcp_sk(sk), acked);
		if (!acked)
			return;
	}
	cubic_curve_grow(sk, &cubic->curve, acked, cubic->least_rtt_us, k_divisor);
}

/* Called in pkts_acked. */
static inline void cubic_measure(struct sock *sk, struct cubic *cubic, const struct ack_sample *sample)
{
	u32 epoch_start = cubic->curve.epoch_start;
	u32 rtt_us;

	if (sample->rtt_us < 0)
		return;
	/* Linux: RTTs of the first second after a recovery still include the queue that led to it */
	if (epoch_start && (s32)(skyhop_jiffies(sk) - epoch_start) < (s32)skyhop_hz(sk))
		return;
	rtt_us = max_u32((u32)sample->rtt_us, 1);
	if (!cubic->least_rtt_us || cubic->least_rtt_us > rtt_us)
		cubic->least_rtt_us = rtt_us;
	hystart_on_ack(sk, &cubic->hystart, cubic->least_rtt_us, rtt_us);
}

#endif
