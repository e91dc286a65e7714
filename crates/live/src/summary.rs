//! summary.json of a live run.

use skyhop_link::LinkSchedule;
use skyhop_path::PathTrace;
use skyhop_record::{
    Direction, Drops, FlowSample, FlowSummary, LinkSample, LinkSummary, ProbeRow, ProbeSummary,
    Quantiles,
};
use skyhop_units::{Bytes, Duration, Instant};

use crate::traffic::bulk::{BulkEnd, BulkPlan};

/// What the p99 of lateness and of the RTT's excess may be before a run is called into question.
const TOLERABLE_P99_US: f64 = 2_000.0;

/// One flow over its whole life, which ended with the run at `run_end` at the latest.
pub(crate) fn flow(
    plan: &BulkPlan,
    end: Option<&BulkEnd>,
    rows: &[FlowSample],
    trace: &PathTrace,
    run_end: Instant,
) -> FlowSummary {
    let stop = end.map_or(run_end.min(plan.stop), |end| end.at).max(plan.start);
    let lived = stop.saturating_since(plan.start);
    let completed = end.and_then(|end| end.completed);
    let last = end.map(|end| end.last).unwrap_or_default();
    // A finite transfer that is complete is exactly its bytes: the kernel counts the FIN as one more.
    let whole = plan.bytes.filter(|_| completed.is_some()).map(Bytes::as_u64);
    let bytes = whole.unwrap_or(last.received_bytes);
    let own: Vec<&FlowSample> = rows.iter().filter(|row| row.flow == plan.id as i32).collect();
    let srtt_us: Vec<u64> =
        own.iter().filter_map(|row| row.srtt_us).map(i64::unsigned_abs).collect();
    let cwnd_sum: i64 = own.iter().map(|row| row.cwnd_packets).sum();
    FlowSummary {
        id: plan.id,
        cc: plan.cc.clone(),
        start_s: plan.start.as_secs_f64(),
        stop_s: stop.as_secs_f64(),
        goodput_bps: per_second(bytes, lived),
        srtt_mean_us: (srtt_us.iter().sum::<u64>()).checked_div(srtt_us.len() as u64),
        rtt_p95_us: percentile(srtt_us, 95),
        base_rtt_mean_us: trace.mean_base_rtt(plan.start, stop).as_micros(),
        cwnd_mean_packets: if own.is_empty() { 0.0 } else { cwnd_sum as f64 / own.len() as f64 },
        retransmits: u64::from(last.sender.retransmits),
        sent_packets: u64::from(last.sender.data_segments_sent),
        completion_s: completed.map(|at| at.saturating_since(plan.start).as_secs_f64()),
    }
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    if time == Duration::ZERO {
        0
    } else {
        (bytes as f64 * 8.0 / time.as_secs_f64()).round() as u64
    }
}

/// The nearest-rank percentile.
fn percentile(mut values: Vec<u64>, percent: usize) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied()
}

/// One probe over its whole life.
pub(crate) fn probe(id: u32, rows: &[ProbeRow]) -> ProbeSummary {
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

/// The forward direction over the run's first `elapsed`, with the drops of both.
pub(crate) fn link(
    schedule: &LinkSchedule,
    transmitted: Bytes,
    rows: &[LinkSample],
    drops: [Drops; 2],
    elapsed: Duration,
) -> LinkSummary {
    let allowed = allowed_bytes(schedule, Instant::START + elapsed);
    let forward: Vec<u64> = rows
        .iter()
        .filter(|row| row.direction == Direction::Forward)
        .map(|row| row.backlog_bytes.unsigned_abs())
        .collect();
    let [there, back] = drops;
    LinkSummary {
        utilisation: if allowed > 0.0 { transmitted.as_u64() as f64 / allowed } else { 0.0 },
        backlog_mean_bytes: forward
            .iter()
            .sum::<u64>()
            .checked_div(forward.len() as u64)
            .unwrap_or(0),
        drops: Drops {
            queue: there.queue + back.queue,
            loss: there.loss + back.loss,
            outage: there.outage + back.outage,
            dismantled: there.dismantled + back.dismantled,
            device: there.device + back.device,
        },
    }
}

/// The wire bytes that the rate would have let through.
fn allowed_bytes(schedule: &LinkSchedule, until: Instant) -> f64 {
    let pieces = schedule.rate.iter().enumerate();
    let bits = pieces.map(|(index, piece)| {
        let next = schedule.rate.get(index + 1).map_or(until, |next| next.from.min(until));
        let held = next.saturating_since(piece.from).as_secs_f64();
        piece.value.bits_per_second() as f64 * held
    });
    bits.sum::<f64>() / 8.0
}

/// What a reader must know of a machine that was too slow.
pub(crate) fn late(lateness: Option<&Quantiles>, rtt_excess: Option<&Quantiles>) -> Vec<String> {
    let too_late = |what: &str, found: Option<&Quantiles>| {
        let p99 = found.map(|found| found.p99).filter(|p99| *p99 > TOLERABLE_P99_US)?;
        Some(format!(
            "{what}: the 99th percentile is {:.1} ms, above 2 ms; the machine was too busy for this \
             rate, so repeat the run on a quieter one or lower the rate",
            p99 / 1e3
        ))
    };
    let lateness = too_late("packets left the link late", lateness);
    let excess = too_late("round trips were longer than the link scheduled", rtt_excess);
    lateness.into_iter().chain(excess).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skyhop_link::Piece;
    use skyhop_units::{Rate, Ratio};

    #[test]
    fn percentiles_are_nearest_ranks() {
        assert_eq!(percentile((1..=100).collect(), 95), Some(95));
        assert_eq!(percentile(vec![7], 99), Some(7));
        assert_eq!(percentile(Vec::new(), 50), None);
    }

    #[test]
    fn allowed_bytes_follow_the_rate() {
        let mbit = |n: u64| Rate::from_bits_per_second(n * 1_000_000);
        let mut schedule = LinkSchedule::fixed(Duration::ZERO, mbit(8), Ratio::ZERO);
        schedule.rate.push(Piece { from: Instant::from_nanos(2_000_000_000), value: mbit(16) });
        assert_eq!(allowed_bytes(&schedule, Instant::from_nanos(1_000_000_000)), 1e6);
        assert_eq!(allowed_bytes(&schedule, Instant::from_nanos(3_000_000_000)), 4e6);
    }

    #[test]
    fn only_a_late_run_is_warned_about() {
        let fine = Quantiles { p50: 1.0, p99: 1_999.0, max: 50_000.0 };
        let late_one = Quantiles { p99: 2_500.0, ..fine };
        assert!(late(Some(&fine), None).is_empty());
        let warnings = late(Some(&late_one), Some(&late_one));
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].contains("2.5 ms"), "{}", warnings[0]);
    }
}
