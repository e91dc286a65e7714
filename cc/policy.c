/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The part of an externally decided congestion control that runs within TCP, split as in CCP (Narayan et al.,
 * "Restructuring endpoint congestion control", SIGCOMM 2018): once per interval it reports the state of the
 * connection, and it applies the decisions made for it: a window, a pacing rate or a factor of the window. An
 * interval ends with the first ACK after its duration; a decision is applied with the first ACK after its arrival.
 * If no decision arrives within `patience` of a report, the base algorithm, CUBIC, takes over until the next
 * decision.
 *
 * The parameter `governs` says what decisions govern:
 * - window: only decisions change the window: losses do not. A timeout is handled by TCP.
 * - base: CUBIC continues between decisions, including its reaction to loss. A factor changes its window or, during
 *   a reduction, the threshold that the window is reduced to.
 */
#include "cubic_core.h"
#include "pacing.h"
#include "prr.h"

enum policy_governs { WINDOW, BASE };
enum policy_every { INTERVAL, ROUND_TRIP, ACK };
enum policy_begins { AT_ONCE, AFTER_SLOW_START };

#define POLICY_PACE_ONE 100
#define POLICY_PARAMS(P)                                                                                  \
	P(governs, 1, WINDOW, WINDOW, BASE, "window|base", "what decisions control: cwnd, or the base algorithm") \
	P(every, 1, INTERVAL, INTERVAL, ACK, "interval|round-trip|ack", "event that triggers a report")  \
	P(interval, 1, 20000, 1000, 60000000, "us", "every=interval: time between reports")              \
	P(begins, 1, AT_ONCE, AT_ONCE, AFTER_SLOW_START, "at-once|after-slow-start", "when decisions take effect") \
	P(patience, 1, 500, 1, 600000, "ms", "how long a report waits for a decision before the base algorithm decides") \
	P(pace, POLICY_PACE_ONE, 0, 0, 10 * POLICY_PACE_ONE, "",                                          \
	  "pacing where no rate is decided, in windows per round trip; 0: none")                          \
	P(least_cwnd, 1, 4, 1, 1000, "packets", "lower bound of cwnd for decisions")                     \
	P(lead, 1, 0, 0, 60000, "ms", "default of lead in [signal]: from announcement to handover")      \
	CUBIC_PARAMS(P)
SKYHOP_PARAMS(POLICY_PARAMS);

struct policy {
	struct cubic cubic;
	struct prr prr;
	u64 id;
	u64 began_ns;     /* start of the interval */
	u64 asked_ns;     /* time of the first report without an answer; 0: none */
	u64 obeyed_ns;    /* time of the report that the last decision answers */
	u64 pacing_rate;  /* decided rate, bytes per second; 0: none */
	u64 rtt_sum_us;   /* of the interval, as are all fields below but the last four */
	u32 rtt_samples;
	u32 rtt_least_us;
	u32 rtt_most_us;
	u32 rtt_first_us;
	u32 rtt_last_us;
	u64 rate_sum;
	u32 rate_samples;
	u32 acks;
	u32 snd_una;        /* as of the previous ACK */
	u32 is_obeying;     /* decisions govern */
	u32 has_begun;      /* decisions may govern */
	u32 is_silent;      /* decisions are overdue, and the fallback phase has been reported */
};
SKYHOP_STATE(struct policy);
SKYHOP_REPORTS;

static bool governs_window(struct sock *sk, const struct policy *policy)
{
	return policy->is_obeying && skyhop_param(sk, governs) == WINDOW;
}

static void begin_interval(struct policy *policy, u64 now)
{
	policy->began_ns = now;
	policy->rtt_sum_us = 0;
	policy->rtt_samples = 0;
	policy->rtt_least_us = 0;
	policy->rtt_most_us = 0;
	policy->rtt_first_us = 0;
	policy->rtt_last_us = 0;
	policy->acks = 0;
	policy->rate_sum = 0;
	policy->rate_samples = 0;
}

/* Rate of Linux's tcp_update_pacing_rate(), which the kernel does not call for modules with cong_control; `percent`
 * is Linux's pacing ratio or the module's own. */
static u64 usual_rate(struct sock *sk, u64 percent)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 window = max_u32(tp->snd_cwnd, tp->packets_out);

	return (u64)tp->mss_cache * ((USEC_PER_SEC / 100) << 3) * percent * window / max_u32(tp->srtt_us, 1);
}

static void pace(struct sock *sk, const struct policy *policy)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 percent = skyhop_param(sk, pace);
	u64 rate = policy->pacing_rate;

	if (rate) {
		pacing_request(sk);
	} else if (percent && policy->is_obeying) {
		rate = usual_rate(sk, percent);
	} else {
		rate = usual_rate(sk, tp->snd_cwnd < tp->snd_ssthresh / 2 ? 200 : 120);
	}
	pacing_set_rate(sk, rate);
}

SKYHOP_HOOK(void, policy_init, struct sock *sk)
{
	struct policy *policy = skyhop_state_create(sk);

	if (!policy)
		return;
	*policy = (struct policy){ .id = (u64)skyhop_random(sk, ~0U) << 32 | skyhop_random(sk, ~0U) };
	policy->snd_una = tcp_sk(sk)->snd_una;
	policy->has_begun = skyhop_param(sk, begins) == AT_ONCE;
	begin_interval(policy, skyhop_now_ns(sk));
	cubic_start(sk, &policy->cubic, &CUBIC_CONFIG);
	if (skyhop_param(sk, pace))
		pacing_request(sk);
	pace(sk, policy);
}

/* ---- Measurements and reports ---- */

SKYHOP_HOOK(void, policy_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct policy *policy = skyhop_state(sk);
	u32 rtt_us;

	if (!policy)
		return;
	cubic_measure(sk, &policy->cubic, sample);
	if (sample->rtt_us < 0)
		return;
	rtt_us = (u32)sample->rtt_us;
	if (!policy->rtt_samples) {
		policy->rtt_first_us = rtt_us;
		policy->rtt_least_us = rtt_us;
	}
	policy->rtt_last_us = rtt_us;
	policy->rtt_least_us = min_u32(policy->rtt_least_us, rtt_us);
	policy->rtt_most_us = max_u32(policy->rtt_most_us, rtt_us);
	policy->rtt_sum_us += rtt_us;
	policy->rtt_samples++;
}

static void measure_rate(struct policy *policy, const struct rate_sample *rs)
{
	policy->acks++;
	if (rs->delivered <= 0 || rs->interval_us <= 0)
		return;
	policy->rate_sum += (u64)(u32)rs->delivered * SKYHOP_RATE_ONE / (u32)rs->interval_us;
	policy->rate_samples++;
}

static void report(struct sock *sk, struct policy *policy, u64 now, u32 flags)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct skyhop_report report = {
		.id = policy->id,
		.at_ns = now,
		.began_ns = policy->began_ns,
		.pacing_rate = sk->sk_pacing_rate,
		.bytes_acked = tp->bytes_acked,
		.bytes_sent = tp->bytes_sent,
		.rate_sum = policy->rate_sum,
		.rate_samples = policy->rate_samples,
		.rtt_sum_us = policy->rtt_sum_us,
		.rtt_samples = policy->rtt_samples,
		.rtt_least_us = policy->rtt_least_us,
		.rtt_most_us = policy->rtt_most_us,
		.rtt_first_us = policy->rtt_first_us,
		.rtt_last_us = policy->rtt_last_us,
		.srtt_us = tp->srtt_us >> 3,
		.mdev_us = tp->mdev_us >> 2,
		.rttvar_us = tp->rttvar_us >> 2,
		.min_rtt_us = tcp_min_rtt(tp),
		.delivered = tp->delivered,
		.delivered_ce = tp->delivered_ce,
		.lost = tp->lost,
		.retransmitted = tp->total_retrans,
		.sent = tp->data_segs_out,
		.acks = policy->acks,
		.rate_packets = tp->rate_delivered,
		.rate_interval_us = tp->rate_interval_us,
		.cwnd = tp->snd_cwnd,
		.ssthresh = tp->snd_ssthresh,
		.packets_out = tp->packets_out,
		.sacked_out = tp->sacked_out,
		.lost_out = tp->lost_out,
		.retrans_out = tp->retrans_out,
		.mss = tp->mss_cache,
		.state = tcp_ca_state(sk),
		.flags = flags,
	};

	if (tp->app_limited)
		report.flags |= SKYHOP_APP_LIMITED;
	if (tcp_is_cwnd_limited(sk))
		report.flags |= SKYHOP_CWND_LIMITED;
	if (policy->is_obeying)
		report.flags |= SKYHOP_OBEYS;
	skyhop_handover(sk, &report.handover);
	skyhop_report(sk, &report);
	begin_interval(policy, now);
}

static bool is_due(struct sock *sk, const struct policy *policy, u64 now)
{
	u64 every = skyhop_param(sk, every);
	u64 interval_us = every == INTERVAL ? skyhop_param(sk, interval) : tcp_sk(sk)->srtt_us >> 3;

	return every == ACK || now - policy->began_ns >= interval_us * NSEC_PER_USEC;
}

/* ---- Decisions and the base algorithm ---- */

static void set_window(struct sock *sk, u64 cwnd)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 least = skyhop_param(sk, least_cwnd);

	cwnd = min_u64(max_u64(cwnd, least), tp->snd_cwnd_clamp);
	tp->snd_cwnd = max_u32((u32)cwnd, 1);
}

static bool is_reducing(struct sock *sk, const struct policy *policy)
{
	return policy->prr.prior_cwnd && tcp_ca_state(sk) >= TCP_CA_CWR;
}

static void multiply(struct sock *sk, const struct policy *policy, u32 factor)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (is_reducing(sk, policy))
		tp->snd_ssthresh = max_u32((u32)min_u64((u64)tp->snd_ssthresh * factor / SKYHOP_FACTOR_ONE,
							TCP_INFINITE_SSTHRESH - 1), 2);
	else
		set_window(sk, (u64)tp->snd_cwnd * factor / SKYHOP_FACTOR_ONE);
}

/* Apply a new decision, if there is one. */
static void obey(struct sock *sk, struct policy *policy)
{
	struct skyhop_decision decision;

	if (!skyhop_decision(sk, policy->id, &decision) || decision.report_ns <= policy->obeyed_ns)
		return;
	policy->obeyed_ns = decision.report_ns;
	policy->asked_ns = 0;
	policy->is_silent = 0;
	if (!policy->has_begun)
		return;
	if (!policy->is_obeying && skyhop_param(sk, governs) == WINDOW)
		policy->prr.prior_cwnd = 0;
	policy->is_obeying = 1;
	policy->pacing_rate = decision.pacing_rate;
	if (decision.factor)
		multiply(sk, policy, decision.factor);
	if (decision.cwnd)
		set_window(sk, decision.cwnd);
}

/* Fall back after too long without a decision: the base algorithm continues from the current window, in congestion
 * avoidance. */
static void lose_patience(struct sock *sk, struct policy *policy, u64 now)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (!policy->asked_ns || now - policy->asked_ns < skyhop_param(sk, patience) * NSEC_PER_MSEC)
		return;
	if (policy->is_silent)
		return;
	policy->is_silent = 1;
	skyhop_tell(sk, SKYHOP_FALLBACK, policy->asked_ns, now);
	if (!policy->is_obeying)
		return;
	policy->is_obeying = 0;
	policy->pacing_rate = 0;
	cubic_forget(sk, &policy->cubic);
	if (skyhop_param(sk, governs) == WINDOW)
		tp->snd_ssthresh = max_u32(tp->snd_cwnd, 2);
}

static void run_base(struct sock *sk, struct policy *policy, const struct rate_sample *rs)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	bool advances = tp->snd_una != policy->snd_una;

	if (is_reducing(sk, policy))
		prr_reduce(sk, &policy->prr, rs->acked_sacked, advances && !rs->losses);
	/* as in tcp_may_raise_cwnd(): on paths with reordering SACKs count as progress, too */
	else if (advances || (tp->reordering > 3 && rs->acked_sacked))
		cubic_grow(sk, &policy->cubic, rs->acked_sacked, 1);
}

SKYHOP_HOOK(void, policy_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct policy *policy = skyhop_state(sk);
	u64 now = skyhop_now_ns(sk);

	(void)ack;
	(void)flag;
	if (!policy)
		return;
	measure_rate(policy, rs);
	policy->has_begun |= !tcp_in_slow_start(tcp_sk(sk));
	obey(sk, policy);
	lose_patience(sk, policy, now);
	if (!governs_window(sk, policy))
		run_base(sk, policy, rs);
	policy->snd_una = tcp_sk(sk)->snd_una;
	pace(sk, policy);
	if (is_due(sk, policy, now)) {
		if (!policy->asked_ns)
			policy->asked_ns = now;
		report(sk, policy, now, 0);
	}
}

SKYHOP_HOOK(u32, policy_ssthresh, struct sock *sk)
{
	struct policy *policy = skyhop_state(sk);

	if (!policy)
		return tcp_reno_ssthresh(sk);
	if (governs_window(sk, policy))
		return max_u32(tcp_sk(sk)->snd_cwnd, TCP_INIT_CWND);
	return cubic_curve_reduced(sk, &policy->cubic.curve);
}

SKYHOP_HOOK(void, policy_set_state, struct sock *sk, u8 new_state)
{
	struct policy *policy = skyhop_state(sk);
	u8 state = tcp_ca_state(sk);
	bool reduces = new_state == TCP_CA_CWR || new_state == TCP_CA_Recovery;

	if (!policy || governs_window(sk, policy))
		return;
	if (new_state == TCP_CA_Loss) {
		cubic_forget(sk, &policy->cubic);
		policy->prr.prior_cwnd = 0;
	} else if (reduces && !policy->prr.prior_cwnd) {
		prr_begin(sk, &policy->prr);
	} else if (!reduces && (state == TCP_CA_CWR || state == TCP_CA_Recovery)) {
		prr_end(sk, &policy->prr);
	}
}

SKYHOP_HOOK(void, policy_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct policy *policy = skyhop_state(sk);

	if (policy)
		cubic_curve_skip_idle(sk, &policy->cubic.curve, event);
}

SKYHOP_HOOK(u32, policy_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SKYHOP_HOOK(void, policy_release, struct sock *sk)
{
	struct policy *policy = skyhop_state(sk);

	if (policy)
		report(sk, policy, skyhop_now_ns(sk), SKYHOP_LAST_REPORT);
}

SKYHOP_MODULE(policy, "Policy: reports observations and applies the decisions of a network",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(policy_init),
	      .release = SKYHOP_FN(policy_release),
	      .cong_control = SKYHOP_FN(policy_cong_control),
	      .ssthresh = SKYHOP_FN(policy_ssthresh),
	      .set_state = SKYHOP_FN(policy_set_state),
	      .cwnd_event = SKYHOP_FN(policy_cwnd_event),
	      .pkts_acked = SKYHOP_FN(policy_pkts_acked),
	      .undo_cwnd = SKYHOP_FN(policy_undo_cwnd));
