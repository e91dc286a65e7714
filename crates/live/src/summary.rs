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
        base_rtt: None,
    }
}

/// Warning for a machine that was too slow for the run.
pub(crate) fn lateness_warning(
    lateness: Option<&Quantiles>,
    rtt_excess: Option<&Quantiles>,
) -> Option<String> {
    let too_late = |found: Option<&Quantiles>, what: &str| {
        let p99_us = found.map(|found| found.p99).filter(|p99_us| *p99_us > TOLERABLE_P99_US)?;
        Some(format!("1 % of the {what} by {:.1} ms or more", p99_us / 1e3))
    };
    let found = [
        too_late(lateness, "packets left the link late"),
        too_late(rtt_excess, "round trips took longer than the link makes them"),
    ];
    let late = found.into_iter().flatten().collect::<Vec<_>>().join(", and ");
    (!late.is_empty()).then(|| {
        format!(
            "the machine was too busy for this rate: {late} (2 ms are tolerable); repeat the run on a less busy \
             machine, or lower the rate"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_run_gives_one_warning() {
        let fine = Quantiles { p50: 1.0, p99: 1_999.0, max: 50_000.0 };
        let late_one = Quantiles { p99: 2_500.0, ..fine };
        assert_eq!(lateness_warning(Some(&fine), None), None);
        let both = lateness_warning(Some(&late_one), Some(&late_one)).unwrap();
        assert_eq!(both.matches("by 2.5 ms or more").count(), 2, "{both}");
        let one = lateness_warning(Some(&fine), Some(&late_one)).unwrap();
        assert!(
            one.contains("1 % of the round trips took longer") && !one.contains("packets"),
            "{one}"
        );
    }
}
