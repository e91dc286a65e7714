/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * BBR versions 2 and 3 (draft-ietf-ccwg-bbr-06, cited by section), with the constants of Linux's patches as
 * defaults, for the modules built on it. Names are the draft's. Bandwidths and gains have the units of pacing.h;
 * volumes are in packets.
 *
 * Linux's patches differ from the draft, and so does this header:
 * - DRAIN paces at 1/2.885 for as long as it takes; drain_gain = 0.5 and drain_rounds = 3 give the draft's
 *   behaviour.
 * - PROBE_DOWN paces at 0.91 (the draft: 0.90) or, in version 2, at 0.75.
 * - A spurious loss restores windows and bounds, but not the state in which it occurred (5.5.11).
 * - While the application limits the flow, loss ends a probe, but leaves inflight_longterm alone (5.5.10).
 *
 * Signals that a stock kernel does not report are derived from others: the state of packets at their departure and
 * which packets were lost (flight.h says how exactly); that a tail loss probe repaired a loss, from the state CWR,
 * which Linux enters and leaves on that ACK (for a mark it stays there). One signal is missing: that an ACK is for a
 * probe that repaired nothing, for which the patches keep the latest bandwidth for one more round. Both patches take
 * ECN as a sign of a shallow queue only where the route says so (ecn_low), which stock kernels do not support: marks
 * are ignored, as in the patches without that route option.
 *
 * A module's state contains a `struct bbr23`, its hooks call the functions under "At the hooks", its parameter table
 * includes BBR23_PARAMS(P, ...), and its init hook passes their values: bbr23_start(sk, bbr, &BBR23_CONFIG, ...).
 */
#ifndef SKYHOP_BBR23_CORE_H
#define SKYHOP_BBR23_CORE_H

#include "flight.h"
#include "pacing.h"

#define BBR23_NONE (~0U) /* bounds and RTTs: no value */
#define BBR23_AGGREGATION_MAX_US (100 * USEC_PER_MSEC)
#define BBR23_AGGREGATION_MAX_ACKED ((1 << 20) - 1)
#define BBR23_MOST_LOSS_EVENTS 15
#define BBR23_MOST_ROUNDS 255
#define BBR23_MOST_SLOPE 30

/* The arguments after P are the initial values in which the versions differ. Parts and gains are in 256ths, as in
 * Linux. */
#define BBR23_PARAMS(P, startup, startup_cwnd, down, up_cwnd, loss_events, tail)                          \
	P(startup_gain, PACING_GAIN_ONE, startup, 257, 2560, "", "pacing gain of STARTUP")                \
	P(startup_cwnd_gain, PACING_GAIN_ONE, startup_cwnd, 256, 2560, "", "cwnd in BDPs in STARTUP and DRAIN") \
	P(drain_gain, PACING_GAIN_ONE, 88, 1, 255, "", "pacing gain of DRAIN")                            \
	P(drain_rounds, 1, 0, 0, 1000, "rounds", "maximum duration of DRAIN; 0: until the queue is drained") \
	P(cwnd_gain, PACING_GAIN_ONE, 512, 256, 2560, "", "cwnd in BDPs in PROBE_BW")                     \
	P(up_gain, PACING_GAIN_ONE, 320, 257, 511, "", "pacing gain of PROBE_UP")                         \
	P(up_cwnd_gain, PACING_GAIN_ONE, up_cwnd, 256, 2560, "", "cwnd in BDPs in PROBE_UP")              \
	P(down_gain, PACING_GAIN_ONE, down, 1, 255, "", "pacing gain of PROBE_DOWN")                      \
	P(full_bw_growth, PACING_GAIN_ONE, 320, 257, 1024, "", "STARTUP goes on while bandwidth grows by this factor per round") \
	P(full_bw_rounds, 1, 3, 1, 100, "rounds", "rounds without that growth that end STARTUP")         \
	P(full_loss_events, 1, loss_events, 0, BBR23_MOST_LOSS_EVENTS, "",                                \
	  "ACKs with losses in a round that, with loss_thresh, end STARTUP; 0: loss does not")            \
	P(loss_thresh, PACING_GAIN_ONE, 5, 0, 255, "", "loss rate of the packets in flight that ends a probe") \
	P(beta, PACING_GAIN_ONE, 76, 0, 255, "", "part by which a round with losses lowers the bounds")  \
	P(headroom, PACING_GAIN_ONE, 38, 0, 255, "", "part of inflight_longterm left to other flows between probes") \
	P(probe_wait, 1, 2000, 0, 1000000, "ms", "minimum time between bandwidth probes")                \
	P(probe_wait_random, 1, 1000, 0, 1000000, "ms", "maximum random addition to probe_wait")         \
	P(probe_rounds, 1, 63, 1, BBR23_MOST_ROUNDS, "rounds", "maximum rounds between probes; fewer if a BDP has fewer packets") \
	P(probe_rounds_random, 1, 2, 1, 100, "rounds", "number of equally likely values, from 0 on, subtracted from probe_rounds") \
	P(min_rtt_window, 1, 10000, 100, 1000000, "ms", "lifetime of an RTT sample")                     \
	P(probe_rtt_win, 1, 5000, 100, 1000000, "ms", "time between PROBE_RTTs, at most min_rtt_window") \
	P(probe_rtt_time, 1, 200, 0, 10000, "ms", "minimum duration of PROBE_RTT; 0: no PROBE_RTT")      \
	P(probe_rtt_cwnd_gain, PACING_GAIN_ONE, 128, 0, 256, "", "cwnd in BDPs in PROBE_RTT")             \
	P(min_cwnd, 1, 4, 1, 1000, "packets", "smallest cwnd")                                           \
	P(pacing_margin, 1, 1, 0, 50, "percent", "pacing rate below the bandwidth estimate, in per cent") \
	P(extra_acked_gain, PACING_GAIN_ONE, 256, 0, 1024, "", "gain on the cwnd allowance for aggregated ACKs; 0: none") \
	P(extra_acked_rounds, 1, 5, 1, 31, "rounds", "half the lifetime of an ACK aggregation sample; 1 in STARTUP") \
	P(tso_rtt_shift, 1, 9, 0, 31, "", "bursts grow by 64 KiB, halved for every 2^this us of RTT; 0: no growth") \
	P(tail_loss, 1, tail, 0, 1, "", "1: count a loss that a tail loss probe repaired")

struct bbr23_config {
	BBR23_PARAMS(SKYHOP_CONFIG_MEMBER, 0, 0, 0, 0, 0, 0)
};
#define BBR23_CONFIG ((struct bbr23_config){ BBR23_PARAMS(SKYHOP_CONFIG_VALUE, 0, 0, 0, 0, 0, 0) })

enum bbr23_state {
	BBR23_STARTUP,      /* double the rate each round until the pipe is full */
	BBR23_DRAIN,        /* empty the queue that STARTUP built up */
	BBR23_PROBE_DOWN,   /* leave room: send less than is delivered */
	BBR23_PROBE_CRUISE, /* send as much as is delivered */
	BBR23_PROBE_REFILL, /* the same without headroom, for one round */
	BBR23_PROBE_UP,     /* send more, until it is too much */
	BBR23_PROBE_RTT,    /* shrink the window briefly, to measure the path without the flow's own queue */
};

/* Relation of the arriving ACKs to a bandwidth probe. */
enum bbr23_ack_phase {
	BBR23_ACKS_INIT, /* no relation to a probe */
	BBR23_ACKS_REFILLING,
	BBR23_ACKS_PROBE_STARTING, /* ACKs are for packets sent before the probe */
	BBR23_ACKS_PROBE_FEEDBACK,
	BBR23_ACKS_PROBE_STOPPING, /* ACKs are for packets of the probe, which is over */
};

struct bbr23 {
	struct bbr23_config config;
	u64 cycle_start_us;
	u64 aggregation_start_us;
	u32 max_bw_filter[2]; /* maxima of the last cycle and of the current one */
	u32 bw_latest;        /* maximum of the current round */
	u32 bw_shortterm;
	u32 inflight_latest;
	u32 inflight_shortterm;
	u32 inflight_longterm;
	u32 undo_bw_shortterm;
	u32 undo_inflight_shortterm;
	u32 undo_inflight_longterm;
	u32 round_end_delivered;
	u32 loss_round_end_delivered;
	u32 min_rtt_us; /* BBR23_NONE: no sample yet */
	u32 min_rtt_at; /* jiffies */
	u32 probe_rtt_min_us;
	u32 probe_rtt_min_at;  /* jiffies */
	u32 probe_rtt_ends_at; /* jiffies; 0: in flight is still above the window of PROBE_RTT */
	u32 probe_wait_us;
	u32 rounds_since_probe;
	u32 drain_rounds;
	u32 probe_up_count; /* acknowledged packets per packet of growth of inflight_longterm */
	u32 probe_up_acked;
	u32 probe_up_rounds;
	u32 pacing_gain;
	u32 cwnd_gain;
	u32 initial_cwnd;
	u32 prior_cwnd; /* last good window before recovery or PROBE_RTT */
	u32 full_bw;
	u32 full_bw_rounds;
	u32 lost_seen; /* tp->lost when losses were last processed */
	u32 loss_events;
	u32 aggregation_acked;
	u32 aggregation_rounds;
	u32 extra_acked[2]; /* maxima of the last two windows */
	u32 extra_acked_now;
	u8 state;     /* enum bbr23_state */
	u8 ack_phase; /* enum bbr23_ack_phase */
	u8 prior_ca_state;
	bool is_version_2;
	bool round_starts;
	bool loss_round_starts;
	bool loss_in_round;
	bool full_bw_now;
	bool full_bw_reached;
	bool probe_samples; /* ACKs may still be for a probe that has not been found too high */
	bool prior_probe_too_high;
	bool stopped_risky_probe;
	bool probe_rtt_round_done;
	bool idle_restart;
	bool has_seen_rtt;
	bool maybe_tail_loss;
	bool undo_is_due;
};

/* State of one ACK. */
struct bbr23_ack {
	const struct rate_sample *rs;
	struct flight_departure newest; /* departure of the newest packet that the ACK delivers */
	u32 lost;                       /* packets lost since the departure of `newest` */
	u32 newly_lost;
	u32 bw;
};

static inline u32 bbr23_max_bw(const struct bbr23 *bbr)
{
	return max_u32(bbr->max_bw_filter[0], bbr->max_bw_filter[1]);
}

static inline u32 bbr23_bandwidth(const struct bbr23 *bbr)
{
	return min_u32(bbr23_max_bw(bbr), bbr->bw_shortterm);
}

static inline bool bbr23_is_in_probe_bw(const struct bbr23 *bbr)
{
	return bbr->state >= BBR23_PROBE_DOWN && bbr->state <= BBR23_PROBE_UP;
}

static inline bool bbr23_is_probing_bw(const struct bbr23 *bbr)
{
	return bbr->state == BBR23_STARTUP || bbr->state == BBR23_PROBE_REFILL || bbr->state == BBR23_PROBE_UP;
}

static inline u32 bbr23_part(u32 value, u64 of_256)
{
	return (u32)(value * of_256 >> PACING_GAIN_SHIFT);
}

static inline u64 bbr23_us_since(u64 then, u64 now)
{
	return now > then ? now - then : 0;
}

static inline bool bbr23_has_expired(struct sock *sk, u32 at, u64 ms)
{
	return after(skyhop_jiffies(sk), at + (u32)((ms * skyhop_hz(sk) + 999) / 1000));
}

/* ---- Pacing rate and bursts (5.6.2, 5.6.3) ---- */

static inline void bbr23_pace_by_first_rtt(struct sock *sk, struct bbr23 *bbr)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 rtt_us = USEC_PER_MSEC;

	if (tp->srtt_us) {
		rtt_us = max_u32(tp->srtt_us >> 3, 1);
		bbr->has_seen_rtt = true;
	}
	pacing_set_rate(sk, pacing_bytes_per_sec(sk, tp->snd_cwnd * PACING_BW_ONE / rtt_us,
						 (u32)bbr->config.startup_gain, bbr->config.pacing_margin));
}

static inline void bbr23_set_pacing_rate(struct sock *sk, struct bbr23 *bbr, u32 gain)
{
	u64 rate = pacing_bytes_per_sec(sk, bbr23_bandwidth(bbr), gain, bbr->config.pacing_margin);

	if (!bbr->has_seen_rtt && tcp_sk(sk)->srtt_us)
		bbr23_pace_by_first_rtt(sk, bbr);
	rate = min_u64(max_u64(rate, 1), sk->sk_max_pacing_rate);
	if (bbr->full_bw_reached || rate > sk->sk_pacing_rate)
		sk->sk_pacing_rate = rate;
}

/* Smallest burst in packets; version 2: one packet below 1.2 Mbit/s. */
static inline u32 bbr23_least_burst(struct sock *sk, const struct bbr23 *bbr)
{
	return bbr->is_version_2 && sk->sk_pacing_rate < 1200000 / 8 ? 1 : 2;
}

/* Burst that Linux's TCP sends at once, in packets: a millisecond's worth, more on short paths. */
static inline u32 bbr23_burst(struct sock *sk, const struct bbr23 *bbr)
{
	u64 bytes = sk->sk_pacing_rate >> (sk->sk_pacing_shift & 31);
	u32 halvings = bbr->min_rtt_us >> (bbr->config.tso_rtt_shift & 31);

	if (bbr->config.tso_rtt_shift && halvings < 17)
		bytes += PACING_GSO_BYTES >> halvings;
	bytes = min_u64(bytes, PACING_MAX_BURST_BYTES);
	return max_u32((u32)bytes / max_u32(tcp_sk(sk)->mss_cache, 1), bbr23_least_burst(sk, bbr));
}

/* ---- Windows (5.6.4) ---- */

/* BBRBDPMultiple, rounded up */
static inline u32 bbr23_bdp(const struct bbr23 *bbr, u32 bw, u64 gain)
{
	u64 product = (u64)bw * bbr->min_rtt_us;

	if (bbr->min_rtt_us == BBR23_NONE)
		return bbr->initial_cwnd;
	return (u32)(((product * gain >> PACING_GAIN_SHIFT) + PACING_BW_ONE - 1) / PACING_BW_ONE);
}

/* BBRQuantizationBudget: bursts in the sender, in the receiver and on the path (5.5.8) */
static inline u32 bbr23_with_budget(struct sock *sk, const struct bbr23 *bbr, u32 inflight)
{
	inflight = max_u32(inflight, 3 * bbr23_burst(sk, bbr));
	inflight = max_u32(inflight, (u32)bbr->config.min_cwnd);
	return bbr->state == BBR23_PROBE_UP ? inflight + 2 : inflight;
}

/* BBRInflight */
static inline u32 bbr23_inflight(struct sock *sk, const struct bbr23 *bbr, u32 bw, u64 gain)
{
	return bbr23_with_budget(sk, bbr, bbr23_bdp(bbr, bw, gain));
}

/* BBRTargetInflight */
static inline u32 bbr23_target_inflight(struct sock *sk, const struct bbr23 *bbr)
{
	return min_u32(bbr23_inflight(sk, bbr, bbr23_bandwidth(bbr), PACING_GAIN_ONE), tcp_sk(sk)->snd_cwnd);
}

/* BBRInflightWithHeadroom */
static inline u32 bbr23_inflight_with_headroom(const struct bbr23 *bbr)
{
	u32 longterm = bbr->inflight_longterm;
	u32 room = max_u32(bbr23_part(longterm, bbr->config.headroom), 1);

	if (longterm == BBR23_NONE)
		return BBR23_NONE;
	return max_u32(longterm > room ? longterm - room : 0, (u32)bbr->config.min_cwnd);
}

/* Packets in the network when pacing releases the next packet (as in Linux) */
static inline u32 bbr23_inflight_at_departure(struct sock *sk, const struct bbr23 *bbr, u32 inflight)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 wait_us = bbr23_us_since(tp->tcp_clock_cache, tp->tcp_wstamp_ns) / NSEC_PER_USEC;
	u32 delivered = (u32)(bbr23_bandwidth(bbr) * wait_us >> PACING_BW_SHIFT);

	if (bbr->pacing_gain > PACING_GAIN_ONE)
		inflight += bbr23_burst(sk, bbr);
	return delivered >= inflight ? 0 : inflight - delivered;
}

/* Allowance for aggregated ACKs (5.5.9), at most 100 ms at the bandwidth */
static inline u32 bbr23_aggregation_cwnd(const struct bbr23 *bbr)
{
	u32 most = (u32)(bbr23_bandwidth(bbr) * BBR23_AGGREGATION_MAX_US / PACING_BW_ONE);
	u32 extra = max_u32(bbr->extra_acked[0], bbr->extra_acked[1]);

	return min_u32(bbr23_part(extra, bbr->config.extra_acked_gain), most);
}

/* BBRProbeRTTCwnd */
static inline u32 bbr23_probe_rtt_cwnd(const struct bbr23 *bbr)
{
	u32 part = bbr23_bdp(bbr, bbr23_bandwidth(bbr), bbr->config.probe_rtt_cwnd_gain);

	return max_u32(part, (u32)bbr->config.min_cwnd);
}

/* BBRSaveCwnd */
static inline void bbr23_save_cwnd(struct sock *sk, struct bbr23 *bbr)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;

	if (bbr->prior_ca_state < TCP_CA_Recovery && bbr->state != BBR23_PROBE_RTT)
		bbr->prior_cwnd = cwnd;
	else
		bbr->prior_cwnd = max_u32(bbr->prior_cwnd, cwnd);
}

/* BBRRestoreCwnd */
static inline void bbr23_restore_cwnd(struct sock *sk, const struct bbr23 *bbr)
{
	tcp_sk(sk)->snd_cwnd = max_u32(tcp_sk(sk)->snd_cwnd, bbr->prior_cwnd);
}

/* BBRBoundCwndForModel */
static inline u32 bbr23_bound_of_model(const struct bbr23 *bbr)
{
	u32 cap = BBR23_NONE;

	if (bbr->state == BBR23_PROBE_CRUISE || bbr->state == BBR23_PROBE_RTT)
		cap = bbr23_inflight_with_headroom(bbr);
	else if (bbr23_is_in_probe_bw(bbr))
		cap = bbr->inflight_longterm;
	cap = min_u32(cap, bbr->inflight_shortterm);
	return max_u32(cap, (u32)bbr->config.min_cwnd);
}

/* BBRSetCwnd: grows by the packets delivered, shrinks at once */
static inline u32 bbr23_cwnd_towards_target(struct sock *sk, const struct bbr23 *bbr, u32 cwnd, u32 acked)
{
	u32 wanted = bbr23_bdp(bbr, bbr23_bandwidth(bbr), bbr->cwnd_gain) + bbr23_aggregation_cwnd(bbr);
	u32 target = bbr23_with_budget(sk, bbr, wanted);

	if (bbr->full_bw_reached)
		cwnd = min_u32(cwnd + acked, target);
	else if (cwnd < target || cwnd < 2 * bbr->initial_cwnd)
		cwnd += acked;
	return max_u32(cwnd, (u32)bbr->config.min_cwnd);
}

static inline void bbr23_set_cwnd(struct sock *sk, const struct bbr23 *bbr, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tp->snd_cwnd;

	if (acked)
		cwnd = bbr23_cwnd_towards_target(sk, bbr, cwnd, acked);
	cwnd = min_u32(cwnd, tp->snd_cwnd_clamp);
	if (bbr->state == BBR23_PROBE_RTT)
		cwnd = min_u32(cwnd, bbr23_probe_rtt_cwnd(bbr));
	tp->snd_cwnd = min_u32(cwnd, bbr23_bound_of_model(bbr));
}

/* ---- States (5.3) ---- */

static inline void bbr23_start_round(struct sock *sk, struct bbr23 *bbr)
{
	bbr->round_end_delivered = tcp_sk(sk)->delivered;
}

/* BBRResetCongestionSignals */
static inline void bbr23_reset_congestion_signals(struct bbr23 *bbr)
{
	bbr->loss_in_round = false;
	bbr->bw_latest = 0;
	bbr->inflight_latest = 0;
}

/* BBRResetShortTermModel */
static inline void bbr23_reset_shortterm(struct bbr23 *bbr)
{
	bbr->bw_shortterm = BBR23_NONE;
	bbr->inflight_shortterm = BBR23_NONE;
}

/* BBRResetFullBW */
static inline void bbr23_reset_full_bw(struct bbr23 *bbr, u32 bw)
{
	bbr->full_bw = bw;
	bbr->full_bw_rounds = 0;
	bbr->full_bw_now = false;
}

static inline u32 bbr23_random_us(struct sock *sk, u64 ms)
{
	return skyhop_random(sk, max_u32((u32)(ms * USEC_PER_MSEC), 1));
}

/* BBRStartProbeBW_DOWN */
static inline void bbr23_start_down(struct sock *sk, struct bbr23 *bbr)
{
	bbr23_reset_congestion_signals(bbr);
	bbr->probe_up_count = BBR23_NONE;
	bbr->rounds_since_probe = skyhop_random(sk, max_u32((u32)bbr->config.probe_rounds_random, 1));
	bbr->probe_wait_us = (u32)(bbr->config.probe_wait * USEC_PER_MSEC) +
			     bbr23_random_us(sk, bbr->config.probe_wait_random);
	bbr->cycle_start_us = tcp_sk(sk)->tcp_mstamp;
	bbr->ack_phase = BBR23_ACKS_PROBE_STOPPING;
	bbr23_start_round(sk, bbr);
	bbr->state = BBR23_PROBE_DOWN;
}

/* BBRStartProbeBW_CRUISE */
static inline void bbr23_start_cruise(struct bbr23 *bbr)
{
	if (bbr->inflight_shortterm != BBR23_NONE)
		bbr->inflight_shortterm = min_u32(bbr->inflight_shortterm, bbr->inflight_longterm);
	bbr->state = BBR23_PROBE_CRUISE;
}

/* BBRStartProbeBW_REFILL */
static inline void bbr23_start_refill(struct sock *sk, struct bbr23 *bbr)
{
	bbr23_reset_shortterm(bbr);
	bbr->probe_up_rounds = 0;
	bbr->probe_up_acked = 0;
	bbr->stopped_risky_probe = false;
	bbr->ack_phase = BBR23_ACKS_REFILLING;
	bbr23_start_round(sk, bbr);
	bbr->state = BBR23_PROBE_REFILL;
}

/* BBRRaiseInflightLongtermSlope: each round of PROBE_UP adds twice as much as the one before */
static inline void bbr23_raise_slope(struct sock *sk, struct bbr23 *bbr)
{
	u32 rounds = min_u32(bbr->probe_up_rounds, BBR23_MOST_SLOPE);

	bbr->probe_up_rounds = rounds + 1;
	bbr->probe_up_count = max_u32(tcp_sk(sk)->snd_cwnd >> rounds, 1);
}

/* BBRStartProbeBW_UP */
static inline void bbr23_start_up(struct sock *sk, struct bbr23 *bbr, u32 bw)
{
	bbr->probe_samples = true;
	bbr->ack_phase = BBR23_ACKS_PROBE_STARTING;
	bbr23_start_round(sk, bbr);
	bbr->cycle_start_us = tcp_sk(sk)->tcp_mstamp;
	bbr23_reset_full_bw(bbr, bw);
	bbr->state = BBR23_PROBE_UP;
	bbr23_raise_slope(sk, bbr);
}

/* ---- Loss (5.5.10) ---- */

/* IsInflightTooHigh */
static inline bool bbr23_is_too_high(const struct bbr23 *bbr, u32 inflight, u32 lost)
{
	return inflight && lost > bbr23_part(inflight, bbr->config.loss_thresh);
}

/* BBRHandleInflightTooHigh: once per probe */
static inline void bbr23_on_too_high(struct sock *sk, struct bbr23 *bbr, u32 inflight, bool is_app_limited)
{
	bbr->prior_probe_too_high = true;
	bbr->probe_samples = false;
	if (!is_app_limited)
		bbr->inflight_longterm = max_u32(inflight, bbr23_part(bbr23_target_inflight(sk, bbr),
								      PACING_GAIN_ONE - bbr->config.beta));
	if (bbr->state == BBR23_PROBE_UP)
		bbr23_start_down(sk, bbr);
}

/* BBRInflightAtLoss for `count` consecutive lost packets, the last of which left with `inflight` in flight and
 * `lost` - 1 losses before: the volume at which the lost part reaches loss_thresh. */
static inline u32 bbr23_inflight_at_loss(const struct bbr23 *bbr, u32 inflight, u32 lost, u32 count)
{
	u64 thresh = bbr->config.loss_thresh;
	u32 inflight_before = inflight - min_u32(count, inflight);
	u32 lost_before = lost - min_u32(count, lost);
	u32 allowed = (u32)((inflight_before * thresh + PACING_GAIN_ONE - 1) >> PACING_GAIN_SHIFT);

	if (lost_before >= allowed)
		return inflight_before;
	return inflight_before + (u32)(((u64)(allowed - lost_before) << PACING_GAIN_SHIFT) / (PACING_GAIN_ONE - thresh));
}

/* BBRNoteLoss: the round of the first loss begins with it */
static inline void bbr23_note_loss(struct sock *sk, struct bbr23 *bbr)
{
	if (!bbr->loss_in_round)
		bbr->loss_round_end_delivered = tcp_sk(sk)->delivered;
	bbr->loss_in_round = true;
}

/* BBRHandleLostPacket for all packets that one event found lost; `last` is the departure of the last one */
static inline void bbr23_on_lost(struct sock *sk, struct bbr23 *bbr, struct flight_departure last, u32 count,
				 bool is_app_limited)
{
	u32 lost = tcp_sk(sk)->lost - last.lost;

	bbr23_note_loss(sk, bbr);
	if (!bbr->probe_samples || !bbr23_is_too_high(bbr, last.in_flight, lost))
		return;
	bbr23_on_too_high(sk, bbr, bbr23_inflight_at_loss(bbr, last.in_flight, lost, count), is_app_limited);
}

/* Process new losses, assumed to be the packets just before those that this ACK delivers (flight.h) */
static inline void bbr23_take_losses(struct sock *sk, struct bbr23 *bbr, const struct bbr23_ack *ack)
{
	struct flight_departure last = ack->newest;

	if (ack->newly_lost) {
		last.in_flight -= min_u32(ack->rs->acked_sacked, last.in_flight);
		bbr23_on_lost(sk, bbr, last, ack->newly_lost, ack->rs->is_app_limited);
	}
	if (bbr->maybe_tail_loss && tcp_ca_state(sk) != TCP_CA_CWR && bbr->config.tail_loss) {
		bbr23_note_loss(sk, bbr);
		if (bbr->probe_samples && bbr23_is_too_high(bbr, bbr->inflight_latest + 1, 1))
			bbr23_on_too_high(sk, bbr, bbr->inflight_latest + 1, ack->rs->is_app_limited);
	}
	bbr->maybe_tail_loss = false;
}

/* Save what undo_cwnd restores: the state before the first losses of the episode */
static inline void bbr23_save_for_undo(struct bbr23 *bbr)
{
	if (!bbr->undo_is_due)
		return;
	bbr->undo_is_due = false;
	bbr->undo_bw_shortterm = bbr->bw_shortterm;
	bbr->undo_inflight_shortterm = bbr->inflight_shortterm;
	bbr->undo_inflight_longterm = bbr->inflight_longterm;
}

/* ---- The model (5.5) ---- */

static inline void bbr23_update_round(struct sock *sk, struct bbr23 *bbr, const struct rate_sample *rs)
{
	bbr->round_starts = rs->interval_us > 0 && !before(rs->prior_delivered, bbr->round_end_delivered);
	if (!bbr->round_starts)
		return;
	bbr23_start_round(sk, bbr);
	bbr->rounds_since_probe = min_u32(bbr->rounds_since_probe + 1, BBR23_MOST_ROUNDS);
	bbr->drain_rounds++;
}

static inline bool bbr23_is_valid(const struct rate_sample *rs)
{
	return rs->interval_us > 0 && rs->delivered >= 0 && rs->acked_sacked;
}

/* BBRUpdateLatestDeliverySignals */
static inline void bbr23_update_latest(struct sock *sk, struct bbr23 *bbr, const struct bbr23_ack *ack)
{
	bbr->loss_round_starts = false;
	if (!bbr23_is_valid(ack->rs))
		return;
	bbr->bw_latest = max_u32(bbr->bw_latest, ack->bw);
	bbr->inflight_latest = max_u32(bbr->inflight_latest, (u32)ack->rs->delivered);
	if (before(ack->rs->prior_delivered, bbr->loss_round_end_delivered))
		return;
	bbr->loss_round_end_delivered = tcp_sk(sk)->delivered;
	bbr->loss_round_starts = true;
}

/* BBRAdvanceLatestDeliverySignals; version 2 calls it before a state change that would reset the signals */
static inline void bbr23_advance_latest(struct bbr23 *bbr, const struct bbr23_ack *ack)
{
	bbr->bw_latest = ack->bw;
	bbr->inflight_latest = (u32)ack->rs->delivered;
}

/* BBRAdaptLowerBoundsFromCongestion: regardless of loss_thresh, a round with losses outside of probes reduces the
 * bounds, but not below what was just delivered */
static inline void bbr23_adapt_shortterm(struct sock *sk, struct bbr23 *bbr)
{
	u64 kept = PACING_GAIN_ONE - bbr->config.beta;

	if (bbr23_is_probing_bw(bbr) || !bbr->loss_in_round)
		return;
	if (bbr->bw_shortterm == BBR23_NONE)
		bbr->bw_shortterm = bbr23_max_bw(bbr);
	if (bbr->inflight_shortterm == BBR23_NONE)
		bbr->inflight_shortterm = tcp_sk(sk)->snd_cwnd;
	bbr->bw_shortterm = max_u32(bbr->bw_latest, bbr23_part(bbr->bw_shortterm, kept));
	bbr->bw_shortterm = max_u32(bbr->bw_shortterm, 1);
	bbr->inflight_shortterm = max_u32(bbr->inflight_latest, bbr23_part(bbr->inflight_shortterm, kept));
}

/* BBRUpdateMaxBw and BBRUpdateCongestionSignals */
static inline void bbr23_update_congestion(struct sock *sk, struct bbr23 *bbr, const struct bbr23_ack *ack)
{
	if (!bbr23_is_valid(ack->rs))
		return;
	if (!ack->rs->is_app_limited || ack->bw >= bbr23_max_bw(bbr))
		bbr->max_bw_filter[1] = max_u32(bbr->max_bw_filter[1], ack->bw);
	if (!bbr->loss_round_starts)
		return;
	bbr23_adapt_shortterm(sk, bbr);
	bbr->loss_in_round = false;
	if (bbr->is_version_2)
		bbr23_advance_latest(bbr, ack);
}

/* BBRAdvanceMaxBwFilter; a cycle without a sample does not count */
static inline void bbr23_advance_max_bw(struct bbr23 *bbr)
{
	if (!bbr->max_bw_filter[1])
		return;
	bbr->max_bw_filter[0] = bbr->max_bw_filter[1];
	bbr->max_bw_filter[1] = 0;
}

static inline void bbr23_start_aggregation_epoch(struct bbr23 *bbr, u64 now_us)
{
	bbr->aggregation_start_us = now_us;
	bbr->aggregation_acked = 0;
}

static inline void bbr23_advance_aggregation_window(struct bbr23 *bbr)
{
	u32 rounds = bbr->full_bw_reached ? (u32)bbr->config.extra_acked_rounds : 1;

	if (!bbr->round_starts || ++bbr->aggregation_rounds < rounds)
		return;
	bbr->aggregation_rounds = 0;
	bbr->extra_acked_now = !bbr->extra_acked_now;
	bbr->extra_acked[bbr->extra_acked_now & 1] = 0;
}

/* BBRUpdateACKAggregation (5.5.9) */
static inline void bbr23_update_aggregation(struct sock *sk, struct bbr23 *bbr, const struct rate_sample *rs)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 expected, extra, *slot;

	if (!bbr->config.extra_acked_gain || !bbr23_is_valid(rs))
		return;
	bbr23_advance_aggregation_window(bbr);
	expected = (u32)(bbr23_bandwidth(bbr) * bbr23_us_since(bbr->aggregation_start_us, tp->delivered_mstamp) /
			 PACING_BW_ONE);
	if (bbr->aggregation_acked <= expected ||
	    bbr->aggregation_acked + rs->acked_sacked > BBR23_AGGREGATION_MAX_ACKED) {
		bbr23_start_aggregation_epoch(bbr, tp->delivered_mstamp);
		expected = 0;
	}
	bbr->aggregation_acked = min_u32(bbr->aggregation_acked + rs->acked_sacked, BBR23_AGGREGATION_MAX_ACKED);
	extra = min_u32(bbr->aggregation_acked - expected, tp->snd_cwnd);
	slot = &bbr->extra_acked[bbr->extra_acked_now & 1];
	*slot = max_u32(*slot, extra);
}

/* ---- STARTUP and DRAIN (5.3.1, 5.3.2) ---- */

/* BBRCheckStartupHighLoss: at the end of a round of recovery with many losses in many places */
static inline void bbr23_check_startup_loss(struct sock *sk, struct bbr23 *bbr, const struct bbr23_ack *ack)
{
	u32 enough = (u32)bbr->config.full_loss_events, one_bdp;

	if (bbr->full_bw_reached)
		return;
	if (ack->newly_lost)
		bbr->loss_events = min_u32(bbr->loss_events + 1, BBR23_MOST_LOSS_EVENTS);
	if (!bbr->loss_round_starts)
		return;
	if (enough && bbr->loss_events >= enough && tcp_ca_state(sk) == TCP_CA_Recovery &&
	    bbr23_is_too_high(bbr, ack->newest.in_flight, ack->lost)) {
		one_bdp = bbr23_inflight(sk, bbr, bbr23_max_bw(bbr), PACING_GAIN_ONE);
		bbr->full_bw_reached = true;
		bbr->inflight_longterm = bbr->is_version_2 ? one_bdp : max_u32(one_bdp, bbr->inflight_latest);
	}
	bbr->loss_events = 0;
}

static inline void bbr23_count_flat_round(struct bbr23 *bbr)
{
	bbr->full_bw_now = ++bbr->full_bw_rounds >= bbr->config.full_bw_rounds;
	bbr->full_bw_reached |= bbr->full_bw_now;
}

/* BBRCheckFullBWReached: in STARTUP and, in version 3, also in PROBE_UP */
static inline void bbr23_check_full_bw(struct bbr23 *bbr, const struct bbr23_ack *ack)
{
	u32 enough = bbr23_part(bbr->full_bw, bbr->config.full_bw_growth);

	if (bbr->full_bw_now || ack->rs->is_app_limited)
		return;
	if (bbr->is_version_2) {
		if (bbr->full_bw_reached || !bbr->round_starts)
			return;
		if (bbr23_max_bw(bbr) >= enough)
			bbr23_reset_full_bw(bbr, bbr23_max_bw(bbr));
		else
			bbr23_count_flat_round(bbr);
		return;
	}
	if (ack->bw >= enough)
		bbr23_reset_full_bw(bbr, ack->bw);
	else if (bbr->round_starts)
		bbr23_count_flat_round(bbr);
}

/* BBRCheckStartupDone and BBRCheckDrainDone */
static inline void bbr23_check_drain(struct sock *sk, struct bbr23 *bbr)
{
	u32 one_bdp;

	if (bbr->state != BBR23_DRAIN && !(bbr->state == BBR23_STARTUP && bbr->full_bw_reached))
		return;
	one_bdp = bbr23_inflight(sk, bbr, bbr23_max_bw(bbr), PACING_GAIN_ONE);
	if (bbr->state == BBR23_STARTUP) {
		bbr->state = BBR23_DRAIN;
		bbr->drain_rounds = 0;
		tcp_sk(sk)->snd_ssthresh = one_bdp;
		bbr23_reset_congestion_signals(bbr);
	}
	if (bbr23_inflight_at_departure(sk, bbr, tcp_packets_in_flight(tcp_sk(sk))) <= one_bdp ||
	    (bbr->config.drain_rounds && bbr->drain_rounds > bbr->config.drain_rounds))
		bbr23_start_down(sk, bbr);
}

/* ---- The cycle of PROBE_BW (5.3.3) ---- */

/* BBRProbeInflightLongtermUpward, while the window limits the flow */
static inline void bbr23_probe_upward(struct sock *sk, struct bbr23 *bbr, u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 more;

	if (!skyhop_bits(tp, is_cwnd_limited) || tp->snd_cwnd < bbr->inflight_longterm) {
		if (bbr->is_version_2)
			bbr->probe_up_acked = 0;
		return;
	}
	bbr->probe_up_acked += acked;
	if (bbr->probe_up_acked >= bbr->probe_up_count) {
		more = bbr->probe_up_acked / max_u32(bbr->probe_up_count, 1);
		bbr->probe_up_acked -= more * bbr->probe_up_count;
		bbr->inflight_longterm += more;
	}
	if (bbr->round_starts)
		bbr23_raise_slope(sk, bbr);
}

/* BBRAdaptLongTermModel, result of the last probe; true if that begins the next probe */
static inline bool bbr23_end_probe_samples(struct sock *sk, struct bbr23 *bbr, const struct bbr23_ack *ack)
{
	if (bbr->ack_phase == BBR23_ACKS_PROBE_STARTING && bbr->round_starts)
		bbr->ack_phase = BBR23_ACKS_PROBE_FEEDBACK;
	if (bbr->ack_phase != BBR23_ACKS_PROBE_STOPPING || !bbr->round_starts)
		return false;
	bbr->probe_samples = false;
	bbr->ack_phase = BBR23_ACKS_INIT;
	if (!bbr23_is_in_probe_bw(bbr))
		return false;
	if (!ack->rs->is_app_limited)
		bbr23_advance_max_bw(bbr);
	/* The probe stopped at the bound as a precaution, and no loss followed. */
	if (!bbr->stopped_risky_probe || bbr->prior_probe_too_high)
		return false;
	bbr23_start_refill(sk, bbr);
	return true;
}

/* BBRAdaptLongTermModel, update of the long-term bound */
static inline void bbr23_adapt_longterm(struct sock *sk, struct bbr23 *bbr, const struct bbr23_ack *ack)
{
	if (ack->lost && bbr23_is_too_high(bbr, ack->newest.in_flight, ack->lost)) {
		if (bbr->probe_samples)
			bbr23_on_too_high(sk, bbr, ack->newest.in_flight, ack->rs->is_app_limited);
		return;
	}
	if (bbr->inflight_longterm == BBR23_NONE)
		return;
	bbr->inflight_longterm = max_u32(bbr->inflight_longterm, ack->newest.in_flight);
	if (bbr->state == BBR23_PROBE_UP)
		bbr23_probe_upward(sk, bbr, ack->rs->acked_sacked);
}

/* BBRIsTimeToProbeBW: after 2 to 3 s, or as many rounds as Reno would take between losses */
static inline bool bbr23_is_time_to_probe(struct sock *sk, const struct bbr23 *bbr)
{
	u32 rounds = min_u32((u32)bbr->config.probe_rounds, bbr23_target_inflight(sk, bbr));

	return bbr23_us_since(bbr->cycle_start_us, tcp_sk(sk)->tcp_mstamp) > bbr->probe_wait_us ||
	       bbr->rounds_since_probe >= rounds;
}

/* BBRIsTimeToCruise */
static inline bool bbr23_is_time_to_cruise(struct sock *sk, const struct bbr23 *bbr, u32 inflight)
{
	return inflight <= bbr23_inflight_with_headroom(bbr) &&
	       inflight <= bbr23_inflight(sk, bbr, bbr23_max_bw(bbr), PACING_GAIN_ONE);
}

/* Whether a probe ends for a reason other than loss: in version 2 when the queue has built up, in version 3 when the
 * rate has not grown for three rounds in which the window did not limit it. */
static inline bool bbr23_has_probed_enough(struct sock *sk, struct bbr23 *bbr, u32 inflight, u32 bw)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (bbr->is_version_2)
		return bbr23_us_since(bbr->cycle_start_us, tp->tcp_mstamp) > bbr->min_rtt_us &&
		       inflight >= bbr23_inflight(sk, bbr, bbr23_max_bw(bbr), bbr->config.up_gain);
	if (skyhop_bits(tp, is_cwnd_limited) && tp->snd_cwnd >= bbr->inflight_longterm) {
		bbr23_reset_full_bw(bbr, bw);
		return false;
	}
	return bbr->full_bw_now;
}

/* BBRIsTimeToGoDown; losses are expected at a bound that the last probe found */
static inline bool bbr23_is_time_to_go_down(struct sock *sk, struct bbr23 *bbr, u32 inflight, u32 bw)
{
	if (bbr->prior_probe_too_high && inflight >= bbr->inflight_longterm) {
		bbr->stopped_risky_probe = true;
		return true;
	}
	return bbr23_has_probed_enough(sk, bbr, inflight, bw);
}

/* BBRUpdateProbeBWCyclePhase */
static inline void bbr23_update_cycle(struct sock *sk, struct bbr23 *bbr, const struct bbr23_ack *ack)
{
	u32 inflight;

	if (!bbr->full_bw_reached || bbr23_end_probe_samples(sk, bbr, ack))
		return;
	bbr23_adapt_longterm(sk, bbr, ack);
	if (!bbr23_is_in_probe_bw(bbr))
		return;
	inflight = bbr23_inflight_at_departure(sk, bbr, ack->rs->prior_in_flight);
	switch (bbr->state) {
	case BBR23_PROBE_REFILL:
		if (bbr->round_starts)
			bbr23_start_up(sk, bbr, ack->bw);
		break;
	case BBR23_PROBE_UP:
		if (bbr23_is_time_to_go_down(sk, bbr, inflight, ack->bw)) {
			bbr->prior_probe_too_high = false;
			bbr23_start_down(sk, bbr);
		}
		break;
	default:
		if (bbr23_is_time_to_probe(sk, bbr))
			bbr23_start_refill(sk, bbr);
		else if (bbr->state == BBR23_PROBE_DOWN && bbr23_is_time_to_cruise(sk, bbr, inflight))
			bbr23_start_cruise(bbr);
	}
}

/* ---- PROBE_RTT (5.3.4) ---- */

/* BBRExitProbeRTT: resets the bounds that losses have set */
static inline void bbr23_exit_probe_rtt(struct sock *sk, struct bbr23 *bbr)
{
	bbr23_reset_shortterm(bbr);
	if (bbr->full_bw_reached) {
		bbr23_start_down(sk, bbr);
		bbr23_start_cruise(bbr);
	} else {
		bbr->state = BBR23_STARTUP;
	}
}

/* BBRCheckProbeRTTDone */
static inline void bbr23_check_probe_rtt_done(struct sock *sk, struct bbr23 *bbr)
{
	u32 now = skyhop_jiffies(sk);

	if (!bbr->probe_rtt_ends_at || !after(now, bbr->probe_rtt_ends_at))
		return;
	bbr->probe_rtt_min_at = now;
	bbr23_restore_cwnd(sk, bbr);
	bbr23_exit_probe_rtt(sk, bbr);
}

/* BBRHandleProbeRTT */
static inline void bbr23_probe_rtt(struct sock *sk, struct bbr23 *bbr)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 inflight = tcp_packets_in_flight(tp);

	/* such a small window does not measure the bandwidth */
	tp->app_limited = max_u32(tp->delivered + inflight, 1);
	if (!bbr->probe_rtt_ends_at) {
		if (inflight > bbr23_probe_rtt_cwnd(bbr))
			return;
		/* 0 means "not set", so the value must not be 0 when the clock wraps */
		bbr->probe_rtt_ends_at = skyhop_jiffies(sk) +
					 (u32)((bbr->config.probe_rtt_time * skyhop_hz(sk) + 999) / 1000);
		bbr->probe_rtt_ends_at = max_u32(bbr->probe_rtt_ends_at, 1);
		bbr->probe_rtt_round_done = false;
		bbr23_start_round(sk, bbr);
		return;
	}
	if (bbr->round_starts)
		bbr->probe_rtt_round_done = true;
	if (bbr->probe_rtt_round_done)
		bbr23_check_probe_rtt_done(sk, bbr);
}

/* BBREnterProbeRTT */
static inline void bbr23_enter_probe_rtt(struct sock *sk, struct bbr23 *bbr)
{
	bbr23_save_cwnd(sk, bbr);
	bbr->state = BBR23_PROBE_RTT;
	bbr->probe_rtt_ends_at = 0;
	bbr->ack_phase = BBR23_ACKS_PROBE_STOPPING;
	bbr23_start_round(sk, bbr);
}

/* BBRUpdateMinRTT (5.5.7) and BBRCheckProbeRTT: PROBE_RTT is due when the minimum of five seconds expires; the
 * minimum of ten seconds is the path's RTT */
static inline void bbr23_update_min_rtt(struct sock *sk, struct bbr23 *bbr, const struct rate_sample *rs)
{
	u64 interval_ms = min_u64(bbr->config.probe_rtt_win, bbr->config.min_rtt_window);
	bool is_due = bbr23_has_expired(sk, bbr->probe_rtt_min_at, interval_ms);

	if (rs->rtt_us >= 0 && ((u64)rs->rtt_us < bbr->probe_rtt_min_us || (is_due && !rs->is_ack_delayed))) {
		bbr->probe_rtt_min_us = (u32)rs->rtt_us;
		bbr->probe_rtt_min_at = skyhop_jiffies(sk);
	}
	if (bbr->probe_rtt_min_us <= bbr->min_rtt_us ||
	    bbr23_has_expired(sk, bbr->min_rtt_at, bbr->config.min_rtt_window)) {
		bbr->min_rtt_us = bbr->probe_rtt_min_us;
		bbr->min_rtt_at = bbr->probe_rtt_min_at;
	}
	if (is_due && bbr->config.probe_rtt_time && !bbr->idle_restart && bbr->state != BBR23_PROBE_RTT)
		bbr23_enter_probe_rtt(sk, bbr);
	if (bbr->state == BBR23_PROBE_RTT)
		bbr23_probe_rtt(sk, bbr);
	if (rs->delivered > 0)
		bbr->idle_restart = false;
}

/* ---- At the hooks ---- */

/* Pacing and window gains of each state (5.6.1) */
static inline void bbr23_update_gains(struct bbr23 *bbr)
{
	const struct bbr23_config *config = &bbr->config;

	bbr->pacing_gain = PACING_GAIN_ONE;
	bbr->cwnd_gain = (u32)config->cwnd_gain;
	switch (bbr->state) {
	case BBR23_STARTUP:
		bbr->pacing_gain = (u32)config->startup_gain;
		bbr->cwnd_gain = (u32)config->startup_cwnd_gain;
		break;
	case BBR23_DRAIN:
		bbr->pacing_gain = (u32)config->drain_gain;
		bbr->cwnd_gain = (u32)config->startup_cwnd_gain;
		break;
	case BBR23_PROBE_UP:
		bbr->pacing_gain = (u32)config->up_gain;
		bbr->cwnd_gain = (u32)config->up_cwnd_gain;
		break;
	case BBR23_PROBE_DOWN:
		bbr->pacing_gain = (u32)config->down_gain;
		break;
	case BBR23_PROBE_RTT:
		bbr->cwnd_gain = PACING_GAIN_ONE;
		break;
	default:
		break;
	}
}

static inline struct bbr23_ack bbr23_read(struct sock *sk, struct bbr23 *bbr, struct flight *flight,
					  const struct rate_sample *rs)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct bbr23_ack ack = { .rs = rs };

	if (rs->delivered > 0) {
		ack.newest = flight_of(sk, flight, rs->prior_delivered, rs->last_end_seq);
		ack.lost = ack.newest.in_flight ? tp->lost - ack.newest.lost : 0;
	}
	ack.newly_lost = tp->lost - bbr->lost_seen;
	bbr->lost_seen = tp->lost;
	if (rs->interval_us > 0 && rs->delivered >= 0)
		ack.bw = (u32)min_u64(((u64)rs->delivered * PACING_BW_ONE + (u64)rs->interval_us - 1) / (u64)rs->interval_us,
				      BBR23_NONE - 1);
	return ack;
}

/* BBRUpdateOnACK */
static inline void bbr23_on_ack(struct sock *sk, struct bbr23 *bbr, struct flight *flight, const struct rate_sample *rs)
{
	struct bbr23_ack ack = bbr23_read(sk, bbr, flight, rs);

	bbr23_take_losses(sk, bbr, &ack);
	bbr23_save_for_undo(bbr);
	bbr23_update_round(sk, bbr, rs);
	bbr23_update_latest(sk, bbr, &ack);
	bbr23_update_congestion(sk, bbr, &ack);
	bbr23_update_aggregation(sk, bbr, rs);
	bbr23_check_startup_loss(sk, bbr, &ack);
	bbr23_check_full_bw(bbr, &ack);
	bbr23_check_drain(sk, bbr);
	bbr23_update_cycle(sk, bbr, &ack);
	bbr23_update_min_rtt(sk, bbr, rs);
	bbr23_update_gains(bbr);
	bbr23_set_pacing_rate(sk, bbr, bbr->pacing_gain);
	bbr23_set_cwnd(sk, bbr, rs->acked_sacked);
	if (bbr->loss_round_starts && !bbr->is_version_2)
		bbr23_advance_latest(bbr, &ack);
	bbr->prior_ca_state = tcp_ca_state(sk);
	flight_snap(sk, flight);
}

/* BBROnInit */
static inline void bbr23_start(struct sock *sk, struct bbr23 *bbr, struct flight *flight,
			       const struct bbr23_config *config, bool is_version_2)
{
	struct tcp_sock *tp = tcp_sk(sk);

	*bbr = (struct bbr23){ .config = *config, .is_version_2 = is_version_2, .state = BBR23_STARTUP };
	bbr->initial_cwnd = tp->snd_cwnd;
	bbr->prior_cwnd = tp->prior_cwnd;
	bbr->min_rtt_us = bbr->probe_rtt_min_us = tcp_min_rtt(tp);
	bbr->min_rtt_at = bbr->probe_rtt_min_at = skyhop_jiffies(sk);
	bbr->loss_round_end_delivered = tp->delivered + 1;
	bbr->inflight_longterm = BBR23_NONE;
	bbr->probe_up_count = BBR23_NONE;
	bbr->lost_seen = tp->lost;
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	bbr23_start_round(sk, bbr);
	bbr23_reset_shortterm(bbr);
	bbr23_start_aggregation_epoch(bbr, tp->tcp_mstamp);
	bbr23_update_gains(bbr);
	bbr23_pace_by_first_rtt(sk, bbr);
	pacing_request(sk);
	flight_start(sk, flight);
}

/* BBRHandleRestartFromIdle (5.4.1) */
static inline void bbr23_on_event(struct sock *sk, struct bbr23 *bbr, enum tcp_ca_event event)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (event != CA_EVENT_TX_START || !tp->app_limited)
		return;
	bbr->idle_restart = true;
	bbr23_start_aggregation_epoch(bbr, tp->tcp_mstamp);
	if (bbr23_is_in_probe_bw(bbr))
		bbr23_set_pacing_rate(sk, bbr, PACING_GAIN_ONE);
	else if (bbr->state == BBR23_PROBE_RTT)
		bbr23_check_probe_rtt_done(sk, bbr);
}

/* BBROnEnterRTO: the path may no longer have the bandwidth found so far */
static inline void bbr23_on_timeout(struct sock *sk, struct bbr23 *bbr, struct flight *flight)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 lost = tp->lost - bbr->lost_seen;

	if (lost) {
		bbr23_on_lost(sk, bbr, flight_of_head(sk, flight, lost), lost, tp->app_limited != 0);
		bbr->lost_seen = tp->lost;
	}
	bbr23_save_for_undo(bbr);
	bbr->prior_ca_state = TCP_CA_Loss;
	bbr23_reset_full_bw(bbr, 0);
	if (!bbr23_is_probing_bw(bbr) && bbr->inflight_shortterm == BBR23_NONE)
		bbr->inflight_shortterm = max_u32(tp->snd_cwnd, bbr->prior_cwnd);
	flight_snap(sk, flight);
}

/* Called in set_state. */
static inline void bbr23_on_state(struct sock *sk, struct bbr23 *bbr, struct flight *flight, u8 new_state)
{
	if (new_state == TCP_CA_Loss)
		bbr23_on_timeout(sk, bbr, flight);
	else if (bbr->prior_ca_state == TCP_CA_Loss)
		bbr23_restore_cwnd(sk, bbr);
	if (new_state == TCP_CA_CWR)
		bbr->maybe_tail_loss = true;
}

/* Called in ssthresh: BBRSaveStateUponLoss. BBR has no threshold: the hook signals that recovery begins. */
static inline u32 bbr23_on_recovery(struct sock *sk, struct bbr23 *bbr)
{
	bbr23_save_cwnd(sk, bbr);
	bbr->undo_is_due = true;
	return tcp_sk(sk)->snd_ssthresh;
}

/* Called in undo_cwnd: BBRHandleSpuriousLossDetection (5.5.11). */
static inline u32 bbr23_on_undo(struct bbr23 *bbr)
{
	bbr23_save_for_undo(bbr);
	bbr23_reset_full_bw(bbr, 0);
	bbr->loss_in_round = false;
	bbr->bw_shortterm = max_u32(bbr->bw_shortterm, bbr->undo_bw_shortterm);
	bbr->inflight_shortterm = max_u32(bbr->inflight_shortterm, bbr->undo_inflight_shortterm);
	bbr->inflight_longterm = max_u32(bbr->inflight_longterm, bbr->undo_inflight_longterm);
	return max_u32(bbr->prior_cwnd, 1);
}

/* Result of sndbuf_expand, as in Linux: one window in flight, one for recovery, and one for the next round. */
#define BBR23_SNDBUF_WINDOWS 3

#endif
