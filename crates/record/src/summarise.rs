//! From the rows of a run to its summary: the same for every engine.

use skyhop_model::{Counts, Direction, Drops};
use skyhop_units::{Bytes, Duration, Instant};

use crate::{FlowSample, FlowSummary, LinkSample, LinkSummary, ProbeRow, ProbeSummary};

/// What an engine knows of one TCP flow beside its samples.
#[derive(Debug, Clone)]
pub struct FlowTotals {
    /// The flow's id.
    pub id: u32,
    /// The congestion control.
    pub cc: String,
    /// When it began.
    pub start: Instant,
    /// When it ended; not before `start`.
    pub stop: Instant,
    /// Payload that reached the receiver in order.
    pub received: Bytes,
    /// Mean RTT of the path without queueing, over the flow's own time.
    pub base_rtt: Duration,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Data segments sent, retransmissions included.
    pub sent_packets: u64,
    /// When a finite transfer's last byte had arrived.
    pub completed: Option<Instant>,
}

/// One flow over its whole life; `rows` may hold those of other flows too.
pub fn flow_summary(totals: FlowTotals, rows: &[FlowSample]) -> FlowSummary {
    let own: Vec<&FlowSample> = rows.iter().filter(|row| row.flow == totals.id as i32).collect();
    let srtt_us: Vec<u64> =
        own.iter().filter_map(|row| row.srtt_us).map(i64::unsigned_abs).collect();
    let cwnd_sum: i64 = own.iter().map(|row| row.cwnd_packets).sum();
    let lived = totals.stop.saturating_since(totals.start);
    FlowSummary {
        id: totals.id,
        cc: totals.cc,
        start_s: totals.start.as_secs_f64(),
        stop_s: totals.stop.as_secs_f64(),
        goodput_bps: per_second(totals.received, lived),
        srtt_mean_us: srtt_us.iter().sum::<u64>().checked_div(srtt_us.len() as u64),
        rtt_p95_us: percentile(srtt_us, 95),
        base_rtt_mean_us: totals.base_rtt.as_micros(),
        cwnd_mean_packets: if own.is_empty() { 0.0 } else { cwnd_sum as f64 / own.len() as f64 },
        retransmits: totals.retransmits,
        sent_packets: totals.sent_packets,
        completion_s: totals.completed.map(|at| at.saturating_since(totals.start).as_secs_f64()),
    }
}

fn per_second(bytes: Bytes, time: Duration) -> u64 {
    if time == Duration::ZERO {
        0
    } else {
        (bytes.as_u64() as f64 * 8.0 / time.as_secs_f64()).round() as u64
    }
}

/// One probe over its whole life.
pub fn probe_summary(id: u32, rows: &[ProbeRow]) -> ProbeSummary {
    let rtt_us: Vec<u64> =
        rows.iter().filter_map(|row| row.rtt_ns).map(|ns| ns.unsigned_abs() / 1000).collect();
    ProbeSummary {
        id,
        sent: rows.len() as u64,
        lost: (rows.len() - rtt_us.len()) as u64,
        rtt_p50_us: percentile(rtt_us.clone(), 50),
        rtt_p95_us: percentile(rtt_us.clone(), 95),
        rtt_p99_us: percentile(rtt_us, 99),
    }
}

/// The forward direction of link number `link`, with the drops of both; `rows` may hold those of
/// other links too. `allowed_bytes` is what the rate would have let
/// through in the time in which `transmitted` left the queue.
pub fn link_summary(
    link: u16,
    transmitted: Bytes,
    allowed_bytes: f64,
    rows: &[LinkSample],
    drops: [Drops; 2],
) -> LinkSummary {
    let forward: Vec<u64> = rows
        .iter()
        .filter(|row| row.link == link && row.direction == Direction::Forward)
        .map(|row| row.backlog_bytes.unsigned_abs())
        .collect();
    let backlog_sum: u64 = forward.iter().sum();
    let share = transmitted.as_u64() as f64 / allowed_bytes;
    let [there, back] = drops;
    LinkSummary {
        utilisation: if allowed_bytes > 0.0 { share } else { 0.0 },
        backlog_mean_bytes: backlog_sum.checked_div(forward.len() as u64).unwrap_or(0),
        drops: there.plus(back),
    }
}

/// The nearest-rank percentile.
fn percentile(mut values: Vec<u64>, percent: usize) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        assert_eq!(percentile((1..=100).collect(), 95), Some(95));
        assert_eq!(percentile(vec![7], 99), Some(7));
        assert_eq!(percentile(Vec::new(), 50), None);
    }

    #[test]
    fn a_flow_is_summed_over_its_own_time_and_rows() {
        let row = |flow, cwnd_packets, srtt_us| FlowSample {
            flow,
            cwnd_packets,
            srtt_us,
            ..FlowSample::default()
        };
        let rows =
            [row(0, 10, None), row(1, 900, Some(9)), row(0, 20, Some(40)), row(0, 30, Some(60))];
        let at = |s: u64| Instant::START + Duration::from_secs(s);
        let totals = FlowTotals {
            id: 0,
            cc: "cubic".to_owned(),
            start: at(1),
            stop: at(3),
            received: Bytes::new(1_000_000),
            base_rtt: Duration::from_millis(30),
            retransmits: 1,
            sent_packets: 700,
            completed: Some(at(3)),
        };
        let summary = flow_summary(totals, &rows);
        assert_eq!(summary.goodput_bps, 4_000_000);
        assert_eq!(summary.srtt_mean_us, Some(50));
        assert_eq!(summary.cwnd_mean_packets, 20.0);
        assert_eq!(summary.completion_s, Some(2.0));
    }
}
