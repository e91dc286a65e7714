//! Test of blind estimation: a live run estimates the handover grid from its own packet arrivals.

use crate::lab;
use crate::lab::{fixed, mbit, ms, tcp};
use skyhop_model::{End, EventKind};
use skyhop_signal::blind::BlindPlan;
use skyhop_signal::{Timing, TimingError};
use skyhop_units::{Duration, Instant, UtcInstant};

#[test]
#[ignore = "soak: measures time"]
fn a_live_run_finds_its_grid_and_announces_it() {
    let mut experiment = fixed(ms(10), mbit(20), ms(13_000));
    let outages = (0..13).map(|second| {
        let from = Instant::START + ms(1000 * second + 300);
        skyhop_link::Outage { from, until: from + ms(80) }
    });
    experiment.links[0].forward.schedule.outages = outages.clone().collect();
    experiment.links[0].back.schedule.outages = outages.collect();
    experiment.flows.push(tcp(0, End::To, "cubic", None));
    let timing = Timing::new(ms(100), TimingError::None, 1);
    let start = UtcInstant::from_unix_nanos(0);
    experiment.blind = Some(BlindPlan { period: Duration::from_secs(1), timing, start });
    let Some(outcome) = lab::run(&experiment) else { return };
    let found = outcome.data.summary.blind.unwrap();
    let announced: Vec<_> = outcome
        .data
        .events
        .iter()
        .filter(|row| row.kind == EventKind::Announcement)
        .map(|row| (row.t_ns, row.at_ns.unwrap()))
        .collect();
    let message = format!("{found:?}, {announced:?}");
    let near = |at_ns: i64| (at_ns - 300_000_000).rem_euclid(1_000_000_000);
    let is_near = |at_ns: i64| near(at_ns).min(1_000_000_000 - near(at_ns)) < 30_000_000;
    let right = found.offset_s.is_some_and(|offset_s| is_near((offset_s * 1e9) as i64))
        && announced.len() >= 4
        && announced.iter().all(|(t_ns, at_ns)| is_near(*at_ns) && t_ns < at_ns);
    assert!(right, "{message}");
}
