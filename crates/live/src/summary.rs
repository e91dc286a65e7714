//! Parts of summary.json that only live runs compute.

use skyhop_app::AppKind as _;
use skyhop_record::{FlowEnd, Quantiles};
use skyhop_units::Instant;

use crate::traffic::tcp::{TcpEnd, TcpPlan};

/// Largest 99th percentile of lateness, and of the excess RTT, that does not cause a warning, in us.
pub(crate) const TOLERABLE_P99_US: f64 = 2_000.0;

/// Final state of a flow; a flow still running ends at `run_end`.
pub(crate) fn flow_end(plan: &TcpPlan, end: Option<&TcpEnd>, run_end: Instant) -> FlowEnd {
    let completed = end.and_then(|end| end.completed);
    let last = end.map(|end| end.last).unwrap_or_default();
    // A completed finite transfer has received exactly its size; the kernel's counter is one byte
    // higher, because it includes the FIN.
    let exact = plan.app.bytes().filter(|_| completed.is_some());
    FlowEnd {
        id: plan.id,
        at: end.map_or(run_end.min(plan.stop), |end| end.at).max(plan.start),
        received: exact.unwrap_or(last.received),
        retransmits: last.retransmits,
        sent_packets: last.data_segments_sent,
        completed,
    }
}

/// Warnings for a machine that was too slow for the run.
pub(crate) fn lateness_warnings(
    lateness: Option<&Quantiles>,
    rtt_excess: Option<&Quantiles>,
) -> Vec<String> {
    let too_late = |what: &str, found: Option<&Quantiles>| {
        let p99 = found.map(|found| found.p99).filter(|p99| *p99 > TOLERABLE_P99_US)?;
        Some(format!(
            "{what}: the 99th percentile is {:.1} ms, above 2 ms; the machine was too busy for this \
                     rate, so repeat the run on a less busy machine or lower the rate",
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

    #[test]
    fn only_a_late_run_is_warned_about() {
        let fine = Quantiles { p50: 1.0, p99: 1_999.0, max: 50_000.0 };
        let late_one = Quantiles { p99: 2_500.0, ..fine };
        assert!(lateness_warnings(Some(&fine), None).is_empty());
        let warnings = lateness_warnings(Some(&late_one), Some(&late_one));
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].contains("2.5 ms"), "{}", warnings[0]);
    }
}
