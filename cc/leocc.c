/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * LeoCC ("LeoCC: Making Internet congestion control robust to LEO satellite dynamics", SIGCOMM 2025) as in its
 * authors' module for their simulations: BBR that, before a reconfiguration of the path, enters PROBE_RTT, takes the
 * new path's RTT whether it is larger or smaller, and then searches for the bandwidth again, as at the start.
 * Between reconfigurations Kalman filters track bandwidth and RTT: while the RTT shows a standing queue, the tracked
 * bandwidth replaces the maximum, and probes are smaller.
 *
 * The authors' module keeps the start time of connections and the gain of probes once for all connections; here each
 * connection has its own. It expects reconfigurations by its own schedule, or from announcements (`source`).
 */
#include "bbr_core.h"

enum leocc_source { OWN, ANNOUNCED };

/* Parameters of BBR_PARAMS that LeoCC has, with its defaults: it does not detect policers. */
#define LEOCC_BBR_PARAMS(P)                                                                               \
	P(startup_gain, PACING_GAIN_ONE, 739, 257, 2560, "", "pacing and cwnd gain of STARTUP: 2/ln 2")   \
	P(drain_gain, PACING_GAIN_ONE, 88, 1, 255, "", "pacing gain of DRAIN")                            \
	P(cwnd_gain, PACING_GAIN_ONE, 512, 256, 2560, "", "cwnd in BDPs in PROBE_BW")                     \
	P(probe_gain, PACING_GAIN_ONE, 320, 257, 511, "", "pacing gain of the cycle's first phase")      \
	P(bw_window, 1, 10, 1, 1000, "rounds", "lifetime of a bandwidth sample")                         \
	P(min_rtt_window, 1, 20000, 100, 1000000, "ms", "lifetime of an RTT sample")                     \
	P(probe_rtt_time, 1, 200, 0, 10000, "ms", "minimum duration of PROBE_RTT; 0: only at reconfigurations") \
	P(full_bw_growth, PACING_GAIN_ONE, 320, 257, 1024, "", "STARTUP goes on while bandwidth grows by this factor per round") \
	P(full_bw_rounds, 1, 3, 1, 100, "rounds", "rounds without that growth that end STARTUP")         \
	P(pacing_margin, 1, 1, 0, 50, "percent", "pacing rate below the bandwidth estimate, in per cent") \
	P(extra_acked_gain, PACING_GAIN_ONE, 256, 0, 1024, "", "gain on the cwnd allowance for aggregated ACKs; 0: none")

#define LEOCC_PARAMS(P)                                                                                   \
	LEOCC_BBR_PARAMS(P)                                                                               \
	P(source, 1, OWN, OWN, ANNOUNCED, "own|announced", "source of reconfiguration times: own schedule, or announcements") \
	P(offset, 1, 12000, 0, 1000000, "ms", "source=own: first reconfiguration, after the start of the connection") \
	P(period, 1, 15000, 1, 1000000, "ms", "source=own: time between reconfigurations")               \
	P(guard_before, 1, 100, 0, 10000, "ms", "time before a reconfiguration at which detection starts") \
	P(fluctuation, 1, 10000, 0, 1000000, "us", "an RTT this far above the minimum indicates a queue") \
	P(fallen_rtt, 1, 45000, 0, 1000000, "us", "an RTT drop of this much indicates a new path")       \
	P(lead, 1, 1000, 0, 60000, "ms", "default of lead in [signal]: from announcement to handover")
SKYHOP_PARAMS(LEOCC_PARAMS);

#define PROBE_RTT_GAIN (PACING_GAIN_ONE / 2)        /* window in PROBE_RTT, relative to the BDP */
#define SMALL_PROBE_GAIN (PACING_GAIN_ONE * 21 / 20) /* gain of probes while a queue stands */
#define KALMAN_NOISE 4 /* variance of the measurements, and of the change between two samples */
#define KALMAN_FIRST 25
#define KALMAN_ONE 256

/* Kalman filter of a scalar random walk. */
struct kalman {
	u32 estimate;
	u32 variance;
};

struct leocc {
	struct bbr bbr;
	struct kalman bw;  /* updated per round */
	struct kalman rtt; /* us, updated per ACK */
	u64 start_ns;
	u64 heard_at_ns;    /* time of the handover in the last announcement used */
	u64 probe_began_ns;
	u32 round_bw;       /* maximum of this round */
	u32 latest_bw;
	u32 new_path_bw;    /* bandwidth measured after the RTT fell; 0: it did not fall */
	bool expects;       /* from a reconfiguration until the bandwidth has been found again */
	bool has_queue;
};
SKYHOP_STATE(struct leocc);

static void kalman_follow(struct kalman *kalman, u32 measured)
{
	u32 variance = kalman->variance + KALMAN_NOISE;
	u32 gain = variance * KALMAN_ONE / (variance + KALMAN_NOISE);
	u64 sum = (u64)(KALMAN_ONE - gain) * kalman->estimate + (u64)gain * measured;

	kalman->estimate = (u32)(sum / KALMAN_ONE);
	kalman->variance = (KALMAN_ONE - gain) * variance / KALMAN_ONE;
}

/* ---- Reconfigurations ---- */

static bool is_due_by_schedule(struct sock *sk, const struct leocc *leocc, u64 now)
{
	u64 guard_ns = skyhop_param(sk, guard_before) * NSEC_PER_MSEC;
	u64 offset_ns = skyhop_param(sk, offset) * NSEC_PER_MSEC;
	u64 soon_ns = now - leocc->start_ns + guard_ns;

	return soon_ns >= offset_ns &&
	       (soon_ns - offset_ns) % (skyhop_param(sk, period) * NSEC_PER_MSEC) <= guard_ns;
}

/* True once per announcement. A handover further in the past than the life of an RTT sample does not count. */
static bool is_due_by_announcement(struct sock *sk, struct leocc *leocc, u64 now)
{
	u64 guard_ns = skyhop_param(sk, guard_before) * NSEC_PER_MSEC;
	u64 recent_ns = skyhop_param(sk, min_rtt_window) * NSEC_PER_MSEC;
	struct skyhop_handover handover;

	if (!skyhop_handover(sk, &handover) || handover.at_ns == leocc->heard_at_ns ||
	    now < handover.at_ns - min_u64(handover.at_ns, guard_ns))
		return false;
	leocc->heard_at_ns = handover.at_ns;
	return now < handover.at_ns || now - handover.at_ns < recent_ns;
}

static void look_out(struct sock *sk, struct leocc *leocc)
{
	u64 now = skyhop_now_ns(sk);

	if (leocc->expects)
		return;
	leocc->expects = skyhop_param(sk, source) == OWN ? is_due_by_schedule(sk, leocc, now)
							 : is_due_by_announcement(sk, leocc, now);
}

/* ---- The model ---- */

static void take_bandwidth(struct sock *sk, struct leocc *leocc, const struct rate_sample *rs)
{
	struct bbr *bbr = &leocc->bbr;
	u32 bw;

	if (bbr->mode == BBR_PROBE_BW && !before(rs->prior_delivered, bbr->round_end_delivered))
		kalman_follow(&leocc->bw, leocc->round_bw);
	bbr_update_bandwidth(sk, bbr, rs);
	if (rs->delivered < 0 || rs->interval_us <= 0)
		return;
	bw = (u32)((u64)rs->delivered * PACING_BW_ONE / (u64)rs->interval_us);
	leocc->round_bw = bbr->round_starts ? bw : max_u32(leocc->round_bw, bw);
	if (bbr->mode == BBR_PROBE_RTT && rs->rtt_us > 0 &&
	    leocc->rtt.estimate > (u64)rs->rtt_us + skyhop_param(sk, fallen_rtt))
		leocc->new_path_bw = leocc->latest_bw;
	leocc->latest_bw = bw;
}

/* Check whether the bandwidth of the new path has been found. */
static void check_found(struct leocc *leocc)
{
	if (leocc->bbr.mode != BBR_STARTUP || !leocc->bbr.pipe_is_full)
		return;
	leocc->new_path_bw = 0;
	leocc->expects = false;
}

/* ---- PROBE_RTT ---- */

static u32 probe_rtt_cwnd(const struct bbr *bbr)
{
	return max_u32(BBR_MIN_CWND, bbr_bdp(bbr, bbr_max_bw(bbr), PROBE_RTT_GAIN));
}

static void check_probe_rtt_done(struct sock *sk, struct leocc *leocc)
{
	struct bbr *bbr = &leocc->bbr;
	struct tcp_sock *tp = tcp_sk(sk);

	if (!bbr->probe_rtt_ends_at || !after(skyhop_jiffies(sk), bbr->probe_rtt_ends_at))
		return;
	tp->snd_cwnd = max_u32(tp->snd_cwnd, bbr->prior_cwnd);
	if (leocc->expects) {
		skyhop_tell(sk, SKYHOP_PROBE_RTT, leocc->probe_began_ns, skyhop_now_ns(sk));
		bbr->pipe_is_full = false;
		bbr->full_bw = 0;
		bbr->full_bw_rounds = 0;
		minmax_restart(&bbr->max_bw, bbr->rounds, leocc->new_path_bw);
	}
	bbr_leave_probe_rtt(sk, bbr);
}

/* BBR's PROBE_RTT with a larger window; at its end the last RTT seen becomes the estimate, whether it rose or fell. */
static void probe_rtt(struct sock *sk, struct leocc *leocc, const struct rate_sample *rs)
{
	struct bbr *bbr = &leocc->bbr;
	struct tcp_sock *tp = tcp_sk(sk);
	u32 inflight = tcp_packets_in_flight(tp);
	u32 now = skyhop_jiffies(sk);

	tp->app_limited = max_u32(tp->delivered + inflight, 1);
	if (!bbr->probe_rtt_ends_at) {
		if (inflight > probe_rtt_cwnd(bbr))
			return;
		bbr->probe_rtt_ends_at = max_u32(now + bbr_ticks_of_ms(sk, bbr->config.probe_rtt_time), 1);
		bbr->probe_rtt_round_done = false;
		bbr->round_end_delivered = tp->delivered;
		return;
	}
	bbr->probe_rtt_round_done |= bbr->round_starts;
	if (!bbr->probe_rtt_round_done)
		return;
	if (after(now, bbr->probe_rtt_ends_at)) {
		if (rs->rtt_us >= 0)
			bbr->min_rtt_us = (u32)rs->rtt_us;
		bbr->min_rtt_at = now;
	}
	check_probe_rtt_done(sk, leocc);
}

static void update_min_rtt(struct sock *sk, struct leocc *leocc, const struct rate_sample *rs)
{
	struct bbr *bbr = &leocc->bbr;
	u32 now = skyhop_jiffies(sk);
	bool has_expired = after(now, bbr->min_rtt_at + bbr_ticks_of_ms(sk, bbr->config.min_rtt_window));
	bool is_wanted = leocc->expects || (has_expired && bbr->config.probe_rtt_time);

	if (rs->rtt_us >= 0 && ((u64)rs->rtt_us < bbr->min_rtt_us || (has_expired && !rs->is_ack_delayed))) {
		bbr->min_rtt_us = (u32)rs->rtt_us;
		bbr->min_rtt_at = now;
	}
	if (is_wanted && !bbr->idle_restart && bbr->mode == BBR_PROBE_BW) {
		bbr->mode = BBR_PROBE_RTT;
		bbr->probe_rtt_ends_at = 0;
		leocc->probe_began_ns = skyhop_now_ns(sk);
		bbr_save_cwnd(sk, bbr);
	}
	if (bbr->mode == BBR_PROBE_RTT)
		probe_rtt(sk, leocc, rs);
	if (rs->delivered > 0)
		bbr->idle_restart = false;
}

/* ---- At the hooks ---- */

/* The queue as of the last ACK decides about the probe of this one. */
static void update_gains(struct leocc *leocc)
{
	struct bbr *bbr = &leocc->bbr;

	bbr_update_gains(bbr);
	if (leocc->has_queue && bbr->mode == BBR_PROBE_BW && bbr->phase == 0)
		bbr->pacing_gain = SMALL_PROBE_GAIN;
}

static u32 choose_bandwidth(struct sock *sk, struct leocc *leocc)
{
	const struct bbr *bbr = &leocc->bbr;
	u64 queue_rtt_us = bbr->min_rtt_us + skyhop_param(sk, fluctuation);

	leocc->has_queue = bbr->mode == BBR_PROBE_BW && !leocc->expects && leocc->rtt.estimate >= queue_rtt_us;
	return leocc->has_queue ? leocc->bw.estimate : bbr_max_bw(bbr);
}

SKYHOP_HOOK(void, leocc_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct leocc *leocc = skyhop_state(sk);
	struct bbr *bbr;
	u32 bw;

	(void)ack;
	(void)flag;
	if (!leocc)
		return;
	bbr = &leocc->bbr;
	look_out(sk, leocc);
	take_bandwidth(sk, leocc, rs);
	bbr_update_aggregation(sk, bbr, rs);
	bbr_check_cycle_phase(sk, bbr, rs);
	bbr_check_full_pipe(bbr, rs);
	check_found(leocc);
	bbr_check_drain(sk, bbr);
	update_min_rtt(sk, leocc, rs);
	update_gains(leocc);
	if (rs->rtt_us > 0)
		kalman_follow(&leocc->rtt, (u32)rs->rtt_us);
	bw = choose_bandwidth(sk, leocc);
	bbr_set_pacing_rate(sk, bbr, bw, bbr->pacing_gain);
	bbr_set_cwnd_for(sk, bbr, rs, bw, probe_rtt_cwnd(bbr));
}

SKYHOP_HOOK(void, leocc_init, struct sock *sk)
{
	struct leocc *leocc = skyhop_state_create(sk);
	struct bbr_config config = { LEOCC_BBR_PARAMS(SKYHOP_CONFIG_VALUE) };

	if (!leocc)
		return;
	bbr_start(sk, &leocc->bbr, &config);
	leocc->bw = leocc->rtt = (struct kalman){ .variance = KALMAN_FIRST };
	leocc->start_ns = skyhop_now_ns(sk);
	leocc->heard_at_ns = 0;
	leocc->round_bw = leocc->latest_bw = leocc->new_path_bw = 0;
	leocc->expects = leocc->has_queue = false;
}

/* Pace at the estimate at once after idle, as BBR does. */
SKYHOP_HOOK(void, leocc_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct leocc *leocc = skyhop_state(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct bbr *bbr;

	if (!leocc || event != CA_EVENT_TX_START || !tp->app_limited)
		return;
	bbr = &leocc->bbr;
	bbr->idle_restart = true;
	bbr_start_aggregation_epoch(bbr, tp->tcp_mstamp);
	if (bbr->mode == BBR_PROBE_BW)
		bbr_set_pacing_rate(sk, bbr, bbr_max_bw(bbr), PACING_GAIN_ONE);
	else if (bbr->mode == BBR_PROBE_RTT)
		check_probe_rtt_done(sk, leocc);
}

SKYHOP_HOOK(void, leocc_set_state, struct sock *sk, u8 new_state)
{
	struct leocc *leocc = skyhop_state(sk);

	if (leocc)
		bbr_on_state(sk, &leocc->bbr, new_state);
}

SKYHOP_HOOK(u32, leocc_ssthresh, struct sock *sk)
{
	struct leocc *leocc = skyhop_state(sk);

	return leocc ? bbr_on_loss(sk, &leocc->bbr) : tcp_sk(sk)->snd_ssthresh;
}

SKYHOP_HOOK(u32, leocc_undo_cwnd, struct sock *sk)
{
	struct leocc *leocc = skyhop_state(sk);

	return leocc ? bbr_on_undo(sk, &leocc->bbr) : tcp_sk(sk)->snd_cwnd;
}

SKYHOP_HOOK(u32, leocc_sndbuf_expand, struct sock *sk)
{
	(void)sk;
	return BBR_SNDBUF_WINDOWS;
}

SKYHOP_MODULE(leocc, "LeoCC: BBR that measures the path again at reconfigurations, and tracks it between them",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(leocc_init),
	      .ssthresh = SKYHOP_FN(leocc_ssthresh),
	      .cong_control = SKYHOP_FN(leocc_cong_control),
	      .set_state = SKYHOP_FN(leocc_set_state),
	      .cwnd_event = SKYHOP_FN(leocc_cwnd_event),
	      .undo_cwnd = SKYHOP_FN(leocc_undo_cwnd),
	      .sndbuf_expand = SKYHOP_FN(leocc_sndbuf_expand));
