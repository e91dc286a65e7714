/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * CUBIC (RFC 9438) as Linux runs it, for the modules that are made of it: times in jiffies, windows in whole
 * packets, and HyStart (Ha and Rhee, "Taming the elephants: New TCP slow start", 2011) with both of its triggers
 * instead of HyStart++.
 *
 * A module defines CUBIC_OWN_PARAMS(P), the rows of its own parameters (none is fine), and then includes this.
 * Its state holds a `struct cubic`, its hooks call the functions cubic_...() below at the hooks' places.
 */
#ifndef SKYHOP_CUBIC_CORE_H
#define SKYHOP_CUBIC_CORE_H

#include "skyhop_cc.h"

#define BETA_ONE 1024
#define TIME_BITS 10 /* time within an epoch is counted in 1/1024 s */
#define HYSTART_ACK_TRAIN 1
#define HYSTART_DELAY 2
#define HYSTART_MIN_SAMPLES 8
#define GSO_BYTES 65536

#define CUBIC_PARAMS(P)                                                                                   \
	P(beta, BETA_ONE, 717, 512, 1023, "", "what the window is multiplied by after a loss")            \
	P(c, 1024, 410, 16, 1024, "", "how steep the curve is, packets per cubic second")                  \
	P(fast_convergence, 1, 1, 0, 1, "", "1: leave room for new flows when the window shrinks")        \
	P(friendliness, 1, 1, 0, 1, "", "1: be no slower than Reno would be")                             \
	P(initial_ssthresh, 1, 0, 0, 0x7fffffff, "packets", "first slow start threshold; 0: none")        \
	P(hystart, 1, 1, 0, 1, "", "1: leave slow start before the first loss")                           \
	P(hystart_detect, 1, 3, 1, 3, "", "HyStart's triggers: 1: ACK train, 2: delay, 3: both")          \
	P(hystart_low_window, 1, 16, 2, 0x7fffffff, "packets", "HyStart does not act below it")           \
	P(hystart_ack_delta, 1, 2000, 1, 1000000, "us", "ACKs that are closer belong to one train")       \
	CUBIC_OWN_PARAMS(P)
SKYHOP_PARAMS(CUBIC_PARAMS);

struct cubic {
	/* the epoch: congestion avoidance since the last reduction */
	u32 w_max;        /* packets: the window before that reduction; 0: there was none */
	u32 epoch_start;  /* jiffies; 0: no epoch is running */
	u32 origin;       /* packets: where the curve is flat */
	u32 k;            /* 1/1024 s from the epoch's start until then */
	u32 w_est;        /* packets: the window Reno would have */
	u32 acked_of_est; /* acknowledged since w_est last grew */
	u32 acks_per_packet;
	u32 updated_at;   /* jiffies: when acks_per_packet was last worked out, */
	u32 updated_cwnd; /* and for which window */
	u32 delay_min_us; /* 0: no sample yet */

	/* HyStart: the running round trip of slow start */
	u32 round_start_us;
	u32 last_ack_us;
	u32 round_end_seq;
	u32 round_rtt_us; /* least RTT of the round's first samples */
	u8 round_samples;
	bool hystart_done;
};
static void hystart_round_begins(struct sock *sk, struct cubic *cubic)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	cubic->round_start_us = (u32)tp->tcp_mstamp;
	cubic->last_ack_us = (u32)tp->tcp_mstamp;
	cubic->round_end_seq = tp->snd_nxt;
	cubic->round_rtt_us = ~0U;
	cubic->round_samples = 0;
}

/* In set_state, for TCP_CA_Loss. RFC 9438 4.8: after a timeout nothing of the past is kept; slow start begins anew, HyStart with it. */
static void cubic_forget(struct sock *sk, struct cubic *cubic)
{
	*cubic = (struct cubic){ 0 };
	if (skyhop_param(sk, hystart))
		hystart_round_begins(sk, cubic);
}

/* In init. */
static void cubic_start(struct sock *sk, struct cubic *cubic)
{
	cubic_forget(sk, cubic);
	if (!skyhop_param(sk, hystart) && skyhop_param(sk, initial_ssthresh))
		tcp_sk(sk)->snd_ssthresh = (u32)skyhop_param(sk, initial_ssthresh);
}

/* In cwnd_event. Time in which nothing was sent is no time of the epoch: RFC 9438 5.8 lets the curve go on from where it was. */
static void cubic_skip_idle(struct sock *sk, struct cubic *cubic, enum tcp_ca_event event)
{
	u32 now = skyhop_jiffies(sk);
	s32 idle = (s32)(now - tcp_sk(sk)->lsndtime);

	if (event != CA_EVENT_TX_START || !cubic->epoch_start || idle <= 0)
		return;
	cubic->epoch_start += (u32)idle;
	if (after(cubic->epoch_start, now))
		cubic->epoch_start = now;
}

/* ---- Reduction ---- */

/* In ssthresh: the threshold after a loss. */
static u32 cubic_reduced(struct sock *sk, struct cubic *cubic)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;
	u64 beta = skyhop_param(sk, beta);

	cubic->epoch_start = 0;
	/* RFC 9438 4.7: a flow that shrinks below its last maximum gives up some of it for good */
	if (cwnd < cubic->w_max && skyhop_param(sk, fast_convergence))
		cubic->w_max = (u32)(cwnd * (BETA_ONE + beta) / (2 * BETA_ONE));
	else
		cubic->w_max = cwnd;
	/* RFC 9438 4.6 */
	return max_u32((u32)(cwnd * beta / BETA_ONE), 2);
}

/* ---- Congestion avoidance ---- */

/* RFC 9438 4.2, figure 2: K is the cube root of (W_max - cwnd_epoch) / C; a module may make it shorter. */
static void epoch_begins(struct sock *sk, struct cubic *cubic, u32 cwnd, u32 acked, u32 k_divisor)
{
	cubic->epoch_start = skyhop_jiffies(sk);
	cubic->acked_of_est = acked;
	cubic->w_est = cwnd;
	cubic->k = 0;
	cubic->origin = max_u32(cubic->w_max, cwnd);
	if (cubic->w_max > cwnd) {
		u64 cubes_per_packet = (1024ULL << (3 * TIME_BITS)) / skyhop_param(sk, c);

		/* 27 bits of packets keep the product within 64 bits for every C */
		cubic->k = cubic_root(cubes_per_packet * min_u32(cubic->w_max - cwnd, 1 << 27)) / k_divisor;
	}
}

/* RFC 9438 4.2, figure 1, one shortest RTT from now: W_cubic(t + RTT) = C (t + RTT - K)^3 + W_max */
static u32 cubic_target(struct sock *sk, const struct cubic *cubic)
{
	u64 hz = skyhop_hz(sk);
	u64 ticks = (u32)(skyhop_jiffies(sk) - cubic->epoch_start);
	u64 rtt_ticks = (cubic->delay_min_us * hz + USEC_PER_SEC - 1) / USEC_PER_SEC;
	u64 t = ((ticks + rtt_ticks) << TIME_BITS) / hz;
	u64 distance = t < cubic->k ? cubic->k - t : t - cubic->k;
	/* 20 bits (17 minutes) keep the product within 64 bits for every C */
	u64 d = min_u64(distance, 1 << 20);
	u64 packets = ((skyhop_param(sk, c) * d * d >> 10) * d) >> (3 * TIME_BITS);

	/* RFC 9438 4.4: concave below the origin, 4.5: convex above it */
	if (t < cubic->k)
		return packets < cubic->origin ? cubic->origin - (u32)packets : 0;
	return (u32)min_u64(cubic->origin + packets, 0x7fffffff);
}

/* RFC 9438 4.4: the window moves to the target within an RTT, by (target - cwnd) / cwnd per packet */
static u32 acks_per_packet_of_curve(struct sock *sk, const struct cubic *cubic, u32 cwnd)
{
	u32 target = cubic_target(sk, cubic);
	u32 acks = target > cwnd ? cwnd / (target - cwnd) : 100 * cwnd;

	/* Linux: as long as no loss has shown what the path holds, grow by 5 % per RTT at least */
	return cubic->w_max == 0 ? min_u32(acks, 20) : acks;
}

/* RFC 9438 4.3: Reno's growth with CUBIC's beta, alpha = 3 (1 - beta) / (1 + beta) per RTT */
static void follow_reno(struct sock *sk, struct cubic *cubic, u32 cwnd)
{
	u64 beta = skyhop_param(sk, beta);
	u64 eighths_per_alpha = 8 * (BETA_ONE + beta) / 3 / (BETA_ONE - beta);
	u32 acks_per_est = max_u32((u32)(cwnd * eighths_per_alpha / 8), 1);

	/* Linux: strictly more than a packet's worth has to be there for the packet */
	if (cubic->acked_of_est > acks_per_est) {
		u32 packets = (cubic->acked_of_est - 1) / acks_per_est;

		cubic->w_est += packets;
		cubic->acked_of_est -= packets * acks_per_est;
	}
	if (cubic->w_est > cwnd)
		cubic->acks_per_packet = min_u32(cubic->acks_per_packet, cwnd / (cubic->w_est - cwnd));
}

static void cubic_update(struct sock *sk, struct cubic *cubic, u32 acked, u32 k_divisor)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;
	u32 now = skyhop_jiffies(sk);

	cubic->acked_of_est += acked;
	/* Linux: while the window stays, 32 looks at the curve per second will do */
	if (cubic->updated_cwnd == cwnd && (s32)(now - cubic->updated_at) <= (s32)(skyhop_hz(sk) / 32))
		return;
	/* and the curve does not move within a jiffy */
	if (!cubic->epoch_start || now != cubic->updated_at) {
		cubic->updated_cwnd = cwnd;
		cubic->updated_at = now;
		if (!cubic->epoch_start)
			epoch_begins(sk, cubic, cwnd, acked, k_divisor);
		cubic->acks_per_packet = acks_per_packet_of_curve(sk, cubic, cwnd);
	}
	if (skyhop_param(sk, friendliness))
		follow_reno(sk, cubic, cwnd);
	/* RFC 9438 4.2: the target is at most 1.5 times the window, hence two ACKs per packet at least */
	cubic->acks_per_packet = max_u32(cubic->acks_per_packet, 2);
}

/* In cong_avoid. An epoch that begins now has its K divided by `k_divisor`: 1 for CUBIC itself. */
static void cubic_grow(struct sock *sk, struct cubic *cubic, u32 acked, u32 k_divisor)
{
	struct tcp_sock *tp = tcp_sk(sk);

	/* RFC 9438 5.8 */
	if (!tcp_is_cwnd_limited(sk))
		return;
	if (tcp_in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	cubic_update(sk, cubic, acked, k_divisor);
	tcp_cong_avoid_ai(tp, cubic->acks_per_packet, acked);
}

/* ---- HyStart ---- */

static void slow_start_ends(struct sock *sk, struct cubic *cubic)
{
	cubic->hystart_done = true;
	tcp_sk(sk)->snd_ssthresh = tcp_sk(sk)->snd_cwnd;
}

/* The time that four of the largest bursts take at the pacing rate, 1 ms at most: an ACK may be that late. */
static u32 burst_time_us(struct sock *sk)
{
	u64 rate = sk->sk_pacing_rate;

	return rate ? (u32)min_u64(USEC_PER_MSEC, 4ULL * GSO_BYTES * USEC_PER_SEC / rate) : 0;
}

/* Ha and Rhee 3.2: ACKs without a gap for as long as the one-way delay: the path is full. What is paced
 * is spread over half an RTT by itself, so that it takes a whole one there. */
static void hystart_ack_train(struct sock *sk, struct cubic *cubic)
{
	u32 now = (u32)tcp_sk(sk)->tcp_mstamp;
	u32 longest = cubic->delay_min_us + burst_time_us(sk);

	if ((s32)(now - cubic->last_ack_us) > (s32)skyhop_param(sk, hystart_ack_delta))
		return;
	cubic->last_ack_us = now;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		longest /= 2;
	if ((s32)(now - cubic->round_start_us) > (s32)longest)
		slow_start_ends(sk, cubic);
}

/* Ha and Rhee 3.3: the round's first RTTs exceed the least one by an eighth (4 to 16 ms): a queue builds up. */
static void hystart_delay(struct sock *sk, struct cubic *cubic, u32 rtt_us)
{
	u32 margin_us = clamp_u32(cubic->delay_min_us / 8, 4000, 16000);

	cubic->round_rtt_us = min_u32(cubic->round_rtt_us, rtt_us);
	if (cubic->round_samples < HYSTART_MIN_SAMPLES)
		cubic->round_samples++;
	else if (cubic->round_rtt_us > cubic->delay_min_us + margin_us)
		slow_start_ends(sk, cubic);
}

static void hystart_update(struct sock *sk, struct cubic *cubic, u32 rtt_us)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 detect = skyhop_param(sk, hystart_detect);

	/* Linux (up to 6.13): a round ends with the first ACK beyond its end, not with the one at it. */
	if (after(tp->snd_una, cubic->round_end_seq))
		hystart_round_begins(sk, cubic);
	if (tp->snd_cwnd < skyhop_param(sk, hystart_low_window))
		return;
	if (detect & HYSTART_ACK_TRAIN)
		hystart_ack_train(sk, cubic);
	if (detect & HYSTART_DELAY)
		hystart_delay(sk, cubic, rtt_us);
}

/* In pkts_acked. */
static void cubic_measure(struct sock *sk, struct cubic *cubic, const struct ack_sample *sample)
{
	u32 rtt_us;

	if (sample->rtt_us < 0)
		return;
	/* Linux: the second after a recovery still measures the queue that led to it */
	if (cubic->epoch_start && (s32)(skyhop_jiffies(sk) - cubic->epoch_start) < (s32)skyhop_hz(sk))
		return;
	rtt_us = max_u32((u32)sample->rtt_us, 1);
	if (!cubic->delay_min_us || cubic->delay_min_us > rtt_us)
		cubic->delay_min_us = rtt_us;
	if (skyhop_param(sk, hystart) && !cubic->hystart_done && tcp_in_slow_start(tcp_sk(sk)))
		hystart_update(sk, cubic, rtt_us);
}

#endif
