//! Tests that packets leave the link when its schedule says so.

use crate::lab;
use crate::lab::{at, fixed, mbit, median, ms, probe, tcp};
use lab::LiveOutcome;
use skyhop_experiment::Experiment;
use skyhop_link::{Limit, Outage, Piece};
use skyhop_model::{DuringOutage, End, EventKind, LiveDevice, LossReason};
use skyhop_record::ProbeRow;
use skyhop_units::Ratio;

#[test]
fn no_probe_is_lost_or_comes_back_before_its_time() {
    for device in lab::devices() {
        let Some(outcome) = lab::run(&probed(device, 1000)) else { continue };
        let rows = &outcome.data.probes;
        assert_eq!(lost_before_the_end(rows), 0, "nothing is lost on a fixed path: {rows:?}");
        assert!(outcome.packets.iter().all(|count| count.dropped == 0), "{:?}", outcome.packets);
        assert!(excess(&outcome).iter().all(|ns| *ns >= 0), "a packet came back before its time");
        let summary = &outcome.data.summary;
        assert_eq!(summary.probes[0].sent, rows.len() as u64);
        assert!(summary.rtt_excess_us.is_some() && summary.lateness_us.is_some());
        assert!(summary.flows.is_empty());
    }
}

#[test]
#[ignore = "soak: measures time"]
fn a_probes_rtt_is_the_scheduled_one() {
    for device in lab::devices() {
        let Some(outcome) = lab::run(&probed(device, 2000)) else { continue };
        let rows = &outcome.data.probes;
        assert!(rows.len() >= 100, "{} probes in 2 s", rows.len());
        let rtt = median(rows.iter().filter_map(|row| row.rtt_ns).collect());
        let late = &outcome.data.summary.lateness_us;
        assert!((40_000_000..41_000_000).contains(&rtt), "{rtt} ns; lateness {late:?}");
        assert!(median(excess(&outcome)) < 1_000_000, "lateness {late:?}");
    }
}

/// Experiment with a probe every 10 ms over a path of 20 ms each way.
fn probed(device: LiveDevice, duration_ms: u64) -> Experiment {
    let mut experiment = fixed(ms(20), mbit(100), ms(duration_ms));
    experiment.device = device;
    experiment.flows.push(probe(0, ms(10)));
    experiment
}

/// Number of unanswered probes before the last answered one; later ones do not count, because a machine that stalls
/// during the drain answers them too late.
fn lost_before_the_end(rows: &[ProbeRow]) -> usize {
    let answered = rows.iter().rposition(|row| row.rtt_ns.is_some()).expect("an answer");
    rows[..answered].iter().filter(|row| row.rtt_ns.is_none()).count()
}

/// Measured minus scheduled round trips, in ns.
fn excess(outcome: &LiveOutcome) -> Vec<i64> {
    let rows = outcome.data.probes.iter();
    rows.filter_map(|row| Some(row.rtt_ns? - row.scheduled_rtt_ns?)).collect()
}

fn with_outage(during_outage: DuringOutage) -> Experiment {
    let mut experiment = fixed(ms(10), mbit(100), ms(1500));
    experiment.flows.push(probe(0, ms(5)));
    let schedule = &mut experiment.links[0].forward.schedule;
    schedule.outages.push(Outage { from: at(500), until: at(800) });
    schedule.during_outage = during_outage;
    experiment
}

#[test]
fn drops_of_an_outage_are_counted_and_recorded() {
    let Some(outcome) = lab::run(&with_outage(DuringOutage::Drop)) else { return };
    let data = &outcome.data;
    let lost = lost_before_the_end(&data.probes) as u64;
    // The timing probe's packets are lost too, and belong to no flow.
    let rows = data.events.iter().filter(|row| row.reason == Some(LossReason::Outage));
    assert_eq!(rows.clone().filter(|row| row.flow == Some(0)).count() as u64, lost);
    assert_eq!(rows.count() as u64, data.summary.link.drops[LossReason::Outage]);
    assert!(lost > 0);
}

#[test]
#[ignore = "soak: measures time"]
fn an_outage_that_drops_loses_what_is_sent_into_it() {
    let Some(outcome) = lab::run(&with_outage(DuringOutage::Drop)) else { return };
    for row in &outcome.data.probes {
        let (sent_ms, is_lost) = (row.t_ns as f64 / 1e6, row.rtt_ns.is_none());
        let at_an_edge = (sent_ms - 500.0).abs() < 1.0 || (sent_ms - 800.0).abs() < 1.0;
        assert!(
            at_an_edge || is_lost == (500.0..800.0).contains(&sent_ms),
            "sent at {sent_ms} ms, lost: {is_lost}"
        );
    }
}

#[test]
fn an_outage_that_holds_delivers_everything_after_its_end() {
    for device in lab::devices() {
        let mut experiment = with_outage(DuringOutage::Hold);
        experiment.device = device;
        let Some(outcome) = lab::run(&experiment) else { continue };
        everything_came_after_the_outage(&outcome);
    }
}

fn everything_came_after_the_outage(outcome: &LiveOutcome) {
    assert_eq!(lost_before_the_end(&outcome.data.probes), 0);
    let held =
        outcome.data.probes.iter().filter(|row| (505..795).contains(&(row.t_ns / 1_000_000)));
    let back_at: Vec<i64> = held.map(|row| row.t_ns + row.rtt_ns.expect("not lost")).collect();
    assert!(!back_at.is_empty(), "no probe was sent into the outage");
    assert!(back_at.iter().all(|t_ns| *t_ns >= 820_000_000), "{back_at:?}");
}

#[test]
#[ignore = "soak: measures time"]
fn a_rate_step_shows_in_goodput_after_one_rtt() {
    let mut experiment = fixed(ms(10), mbit(60), ms(3000));
    experiment.sample = ms(50);
    experiment.links[0].forward.schedule.rate.push(Piece { from: at(1500), value: mbit(15) });
    experiment.flows.push(tcp(0, End::From, "cubic", None));
    let Some(outcome) = lab::run(&experiment) else { return };
    let mean_mbps = |from_ms: i64, until_ms: i64| {
        let rows = outcome.data.flows.iter();
        let rows = rows.filter(|row| (from_ms..until_ms).contains(&(row.t_ns / 1_000_000)));
        let rates: Vec<f64> = rows.map(|row| row.goodput_bps as f64 / 1e6).collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    };
    let (before, after) = (mean_mbps(500, 1500), mean_mbps(1500 + 20 + 50, 3000));
    assert!(before > 30.0, "{before} Mbit/s of 60");
    assert!((7.0..15.5).contains(&after), "{after} Mbit/s of 15");
}

#[test]
fn every_packet_is_accounted_for() {
    for device in lab::devices() {
        let mut experiment = fixed(ms(15), mbit(30), ms(1500));
        experiment.device = device;
        experiment.links[0].forward.schedule.loss[0].value =
            Ratio::new(0.05).expect("a fraction").into();
        experiment.links[0].forward.schedule.outages.push(Outage { from: at(700), until: at(800) });
        experiment.links[0].forward.queue = Limit::Packets(50);
        experiment.flows.push(tcp(0, End::From, "cubic", None));
        experiment.flows.push(probe(1, ms(10)));
        let Some(outcome) = lab::run(&experiment) else { continue };
        for count in outcome.packets {
            assert_eq!(count.inside, 0, "the link has run empty: {count:?}");
            assert_eq!(count.device_sent, count.enqueued, "{count:?}");
            assert_eq!(count.enqueued, count.delivered + count.dropped, "{count:?}");
            assert_eq!(count.delivered, count.device_received + count.refused, "{count:?}");
            assert!(count.enqueued > 0, "{count:?}");
        }
        let data = &outcome.data;
        let drops = data.summary.link.drops;
        assert!(drops[LossReason::Loss] > 0 && drops[LossReason::Outage] > 0, "{drops:?}");
        let losses = data.events.iter().filter(|row| row.kind == EventKind::Loss).count() as u64;
        assert_eq!(
            losses + outcome.packets[0].device_drops + outcome.packets[1].device_drops,
            drops[LossReason::Queue]
                + drops[LossReason::Loss]
                + drops[LossReason::Outage]
                + drops[LossReason::Dismantled]
                + drops[LossReason::Device]
        );
        // The sums over the samples' rows equal the totals too.
        let by_rows: u64 = data
            .link
            .iter()
            .map(|row| {
                row.drops[LossReason::Loss]
                    + row.drops[LossReason::Outage]
                    + row.drops[LossReason::Queue]
            })
            .sum();
        assert_eq!(
            by_rows,
            drops[LossReason::Loss] + drops[LossReason::Outage] + drops[LossReason::Queue]
        );
    }
}
