/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * CUBIC's window (RFC 9438) in congestion avoidance, computed as in Linux: times in jiffies, windows in whole
 * packets. For modules that grow a window along it: cubic_curve_reduced() in ssthresh, cubic_curve_grow() in
 * cong_avoid above ssthresh, cubic_curve_skip_idle() in cwnd_event, cubic_curve_forget() after a timeout.
 */
#ifndef SKYHOP_CUBIC_CURVE_H
#define SKYHOP_CUBIC_CURVE_H

#include "skyhop_cc.h"

#define CUBIC_BETA_ONE 1024
#define CUBIC_C_SHIFT 10
#define CUBIC_C_ONE (1 << CUBIC_C_SHIFT)
#define CUBIC_TIME_BITS 10 /* time within an epoch is counted in 1/1024 s */

struct cubic_curve_config {
	u64 beta;             /* factor of the window after a loss, times CUBIC_BETA_ONE */
	u64 c;                /* packets per cubic second, times CUBIC_C_ONE */
	u64 fast_convergence; /* 1: leave room for new flows when the window shrinks */
	u64 friendliness;     /* 1: grow no slower than Reno */
};

/* State of the epoch, which is congestion avoidance since the last reduction. */
struct cubic_curve {
	struct cubic_curve_config config;
	u32 w_max;        /* packets: the window before that reduction; 0: there was none */
	u32 epoch_start;  /* jiffies; 0: no epoch is running */
	u32 origin;       /* packets: the plateau of the curve */
	u32 k;            /* 1/1024 s from the start of the epoch to the plateau */
	u32 w_est;        /* packets: the window Reno would have */
	u32 acked_of_est; /* packets acknowledged since w_est last grew */
	u32 acks_per_packet;
	u32 updated_at;   /* jiffies: when acks_per_packet was last computed, */
	u32 updated_cwnd; /* and for which window */
};

/* Integer cube root: the largest r with r * r * r <= a, by Newton's method from above. 38 steps of at worst a third
 * each bring any u64 near, six more make it exact. The number of steps is fixed and free of branches, because the
 * verifier follows both sides of each branch. */
static inline u32 cubic_root(u64 a)
{
	u64 root = 1ULL << 22;

	if (!a)
		return 0;
	for (int step = 0; step < 44; step++)
		root = (2 * root + a / (root * root)) / 3;
	/* the last steps may overshoot, by two for the smallest numbers */
	root -= root * root * root > a;
	root -= root * root * root > a;
	return (u32)root;
}

/* Forget the past after a timeout (RFC 9438 4.8). */
static inline void cubic_curve_forget(struct cubic_curve *curve)
{
	*curve = (struct cubic_curve){ .config = curve->config };
}

/* Leave idle time out of the epoch, so that the curve continues from where it was (RFC 9438 5.8). */
static inline void cubic_curve_skip_idle(struct sock *sk, struct cubic_curve *curve, enum tcp_ca_event event)
{
	u32 now = skyhop_jiffies(sk);
	s32 idle = (s32)(now - tcp_sk(sk)->lsndtime);

	if (event != CA_EVENT_TX_START || !curve->epoch_start || idle <= 0)
		return;
	curve->epoch_start += (u32)idle;
	if (after(curve->epoch_start, now))
		curve->epoch_start = now;
}

/* Return the threshold after a loss, which ends the epoch. */
static inline u32 cubic_curve_reduced(struct sock *sk, struct cubic_curve *curve)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;
	u64 beta = curve->config.beta;

	curve->epoch_start = 0;
	/* fast convergence (RFC 9438 4.7): a flow that shrinks below its last maximum releases some bandwidth */
	if (cwnd < curve->w_max && curve->config.fast_convergence)
		curve->w_max = (u32)(cwnd * (CUBIC_BETA_ONE + beta) / (2 * CUBIC_BETA_ONE));
	else
		curve->w_max = cwnd;
	/* multiplicative decrease (RFC 9438 4.6) */
	return max_u32((u32)(cwnd * beta / CUBIC_BETA_ONE), 2);
}

/* Begin an epoch. K is the cube root of (W_max - cwnd_epoch) / C (RFC 9438 4.2, figure 2). */
static inline void cubic_curve_epoch_begins(struct sock *sk, struct cubic_curve *curve, u32 acked, u32 k_divisor)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;

	curve->epoch_start = skyhop_jiffies(sk);
	curve->acked_of_est = acked;
	curve->w_est = cwnd;
	curve->k = 0;
	curve->origin = max_u32(curve->w_max, cwnd);
	if (curve->w_max > cwnd) {
		u64 cubes_per_packet = ((u64)CUBIC_C_ONE << (3 * CUBIC_TIME_BITS)) / curve->config.c;

		/* 27 bits of packets keep the product within 64 bits for every C */
		curve->k = cubic_root(cubes_per_packet * min_u32(curve->w_max - cwnd, 1 << 27)) / k_divisor;
	}
}

/* Target one shortest RTT from now (RFC 9438 4.2, figure 1): W_cubic(t + RTT) = C (t + RTT - K)^3 + W_max */
static inline u32 cubic_curve_target(struct sock *sk, const struct cubic_curve *curve, u32 least_rtt_us)
{
	u64 hz = skyhop_hz(sk);
	u64 ticks = (u32)(skyhop_jiffies(sk) - curve->epoch_start);
	u64 rtt_ticks = (least_rtt_us * hz + USEC_PER_SEC - 1) / USEC_PER_SEC;
	u64 t = ((ticks + rtt_ticks) << CUBIC_TIME_BITS) / hz;
	u64 distance = t < curve->k ? curve->k - t : t - curve->k;
	/* 20 bits (17 minutes) keep the product within 64 bits for every C */
	u64 d = min_u64(distance, 1 << 20);
	u64 packets = ((curve->config.c * d * d >> CUBIC_C_SHIFT) * d) >> (3 * CUBIC_TIME_BITS);

	/* RFC 9438 4.4: concave below the origin, 4.5: convex above it */
	if (t < curve->k)
		return packets < curve->origin ? curve->origin - (u32)packets : 0;
	return (u32)min_u64(curve->origin + packets, 0x7fffffff);
}

/* The window moves to the target within an RTT, by (target - cwnd) / cwnd per packet (RFC 9438 4.4) */
static inline u32 cubic_curve_acks_per_packet(struct sock *sk, const struct cubic_curve *curve, u32 least_rtt_us)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;
	u32 target = cubic_curve_target(sk, curve, least_rtt_us);
	u32 acks = target > cwnd ? cwnd / (target - cwnd) : 100 * cwnd;

	/* Linux: until a loss has shown the capacity of the path, grow by at least 5 % per RTT */
	return curve->w_max == 0 ? min_u32(acks, 20) : acks;
}

/* RFC 9438 4.3: Reno's growth with CUBIC's beta, alpha = 3 (1 - beta) / (1 + beta) per RTT */
static inline void cubic_curve_follow_reno(struct cubic_curve *curve, u32 cwnd)
{
	u64 beta = curve->config.beta;
	u64 eighths_per_alpha = 8 * (CUBIC_BETA_ONE + beta) / 3 / (CUBIC_BETA_ONE - beta);
	u32 acks_per_est = max_u32((u32)(cwnd * eighths_per_alpha / 8), 1);

	/* Linux: the count has to exceed a packet's worth */
	if (curve->acked_of_est > acks_per_est) {
		u32 packets = (curve->acked_of_est - 1) / acks_per_est;

		curve->w_est += packets;
		curve->acked_of_est -= packets * acks_per_est;
	}
	if (curve->w_est > cwnd)
		curve->acks_per_packet = min_u32(curve->acks_per_packet, cwnd / (curve->w_est - cwnd));
}

static inline void cubic_curve_update(struct sock *sk, struct cubic_curve *curve, u32 acked, u32 least_rtt_us,
				      u32 k_divisor)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;
	u32 now = skyhop_jiffies(sk);

	curve->acked_of_est += acked;
	/* Linux: while the window does not change, 32 updates per second are enough */
	if (curve->updated_cwnd == cwnd && (s32)(now - curve->updated_at) <= (s32)(skyhop_hz(sk) / 32))
		return;
	/* the curve does not move within a jiffy */
	if (!curve->epoch_start || now != curve->updated_at) {
		curve->updated_cwnd = cwnd;
		curve->updated_at = now;
		if (!curve->epoch_start)
			cubic_curve_epoch_begins(sk, curve, acked, k_divisor);
		curve->acks_per_packet = cubic_curve_acks_per_packet(sk, curve, least_rtt_us);
	}
	if (curve->config.friendliness)
		cubic_curve_follow_reno(curve, cwnd);
	/* RFC 9438 4.2: the target is at most 1.5 times the window, hence two ACKs per packet at least */
	curve->acks_per_packet = max_u32(curve->acks_per_packet, 2);
}

/* Move the window along the curve for `acked` packets. `least_rtt_us` is the connection's minimum RTT; the K of an
 * epoch that begins now is divided by `k_divisor`: 1 for CUBIC itself. */
static inline void cubic_curve_grow(struct sock *sk, struct cubic_curve *curve, u32 acked, u32 least_rtt_us,
				    u32 k_divisor)
{
	cubic_curve_update(sk, curve, acked, least_rtt_us, k_divisor);
	tcp_cong_avoid_ai(tcp_sk(sk), curve->acks_per_packet, acked);
}

#endif
