/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Proportional rate reduction (RFC 6937bis) as in Linux from 5.14 on, for modules that have cong_control and still
 * want the window reduced as TCP itself would: prr_begin() in set_state where CWR or Recovery begins, prr_reduce()
 * for each ACK during it, prr_end() in set_state where it ends.
 */
#ifndef SKYHOP_PRR_H
#define SKYHOP_PRR_H

#include "skyhop_cc.h"

struct prr {
	u32 prior_cwnd; /* packets: the window when the reduction began */
	u32 delivered;  /* packets delivered since then */
	u32 sent_before;
};

/* Begin a reduction (RFC 6937bis 6.1). */
static inline void prr_begin(struct sock *sk, struct prr *prr)
{
	prr->prior_cwnd = tcp_sk(sk)->snd_cwnd;
	prr->delivered = 0;
	prr->sent_before = tcp_sk(sk)->data_segs_out;
}

/* Update the window for an ACK that delivers `acked` packets (RFC 6937bis 6.2); `advances`: it advances
 * cumulatively, and no loss was found. */
static inline void prr_reduce(struct sock *sk, struct prr *prr, u32 acked, bool advances)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 in_flight = tcp_packets_in_flight(tp);
	u32 out = tp->data_segs_out - prr->sent_before;
	s64 send;

	if (!acked || !prr->prior_cwnd)
		return;
	prr->delivered += acked;
	if (in_flight > tp->snd_ssthresh) {
		u64 due = (u64)tp->snd_ssthresh * prr->delivered + prr->prior_cwnd - 1;

		send = (s64)(due / prr->prior_cwnd) - out;
	} else {
		s64 owed = (s64)prr->delivered - out;

		send = max_of(owed, (s64)acked) + advances;
		send = min_of(send, (s64)(tp->snd_ssthresh - in_flight));
	}
	/* The first retransmission leaves in any case. */
	send = max_of(send, (s64)(out ? 0 : 1));
	tp->snd_cwnd = clamp_u32(in_flight + (u32)max_of(send, (s64)0), 1, tp->snd_cwnd_clamp);
}

/* Set the window to the threshold at the end, unless the reduction was undone (RFC 6937bis 6.3). */
static inline void prr_end(struct sock *sk, struct prr *prr)
{
	struct tcp_sock *tp = tcp_sk(sk);
	bool was_reduced = tcp_ca_state(sk) == TCP_CA_CWR || tp->undo_marker;

	if (prr->prior_cwnd && was_reduced && tp->snd_ssthresh < TCP_INFINITE_SSTHRESH)
		tp->snd_cwnd = tp->snd_ssthresh;
	prr->prior_cwnd = 0;
}

#endif
