//! Tests of skyhop's congestion controls in live runs: loaded for the run's duration, unloaded after it.

use crate::lab;
use skyhop_model::{End, EventKind, HandoverKind, PhaseKind};
use skyhop_units::Duration;
use std::collections::BTreeMap;

use crate::lab::{SKIPPED, at, becomes_true, children, exit_status, fixed, forked, mbit, ms, tcp};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use skyhop_cc::Module;
use skyhop_engine::{Control, Unattended};
use skyhop_experiment::{Experiment, Traffic};
use skyhop_host::HostError;
use skyhop_kernel::KernelError;
use skyhop_live::LiveOptions;
use skyhop_signal::Announcement;

/// Whether modules can be loaded here; records a skip if not.
pub fn possible() -> bool {
    let module = skyhop_kernel::register(Module::find("reno").unwrap(), &[]);
    let need = module.as_ref().err().and_then(KernelError::missing);
    if let Some(need) = need {
        skyhop_needs::missing(need, module.unwrap_err());
    } else {
        module.unwrap();
    }
    need.is_none()
}

fn with_flow(cc: &str, parameters: serde_json::Value) -> Experiment {
    let mut experiment = fixed(ms(5), mbit(20), ms(1500));
    experiment.flows.push(tcp(0, End::From, cc, None));
    set_parameters(&mut experiment, 0, parameters);
    experiment
}

fn set_parameters(experiment: &mut Experiment, flow: usize, given: serde_json::Value) {
    if let Traffic::Tcp { cc, parameters, .. } = &mut experiment.flows[flow].traffic {
        let name = cc.strip_prefix("skyhop:").unwrap_or(cc);
        *parameters = BTreeMap::from([(name.to_owned(), given)]);
    }
}

/// Names in the kernel that runs have given to a module.
fn unique_names(module: &str) -> Vec<String> {
    let offered = skyhop_kernel::offered().unwrap();
    offered.into_iter().filter(|name| name.starts_with(&format!("{module}_"))).collect()
}

/// Caller that records the names offered during a run, and optionally kills the engine.
#[derive(Default)]
struct Witness {
    seen: Vec<String>,
    kills: bool,
}

impl Control for Witness {
    fn progress(&mut self, _elapsed: Duration, _total: Duration) {
        self.seen = [unique_names("cubic"), unique_names("bbr")].concat();
        if self.kills {
            let engines = children(std::process::id() as i32).into_iter().flat_map(children);
            for engine in engines {
                // The engine may have ended since it was listed, which the test would notice.
                kill(Pid::from_raw(engine), Signal::SIGKILL).unwrap_or_default();
            }
        }
    }

    fn interrupted(&mut self) -> bool {
        false
    }
}

#[test]
fn flows_run_ours_each_with_parameters_of_its_own() {
    if !possible() {
        return;
    }
    let before = skyhop_kernel::offered().unwrap();
    let mut experiment = with_flow("skyhop:cubic", serde_json::json!({"beta": 0.5}));
    experiment.flows.push(tcp(1, End::From, "skyhop:cubic", None));
    experiment.flows.push(tcp(2, End::To, "skyhop:bbr", None));
    experiment.flows.push(tcp(3, End::To, "cubic", None));
    let mut witness = Witness::default();
    let result = lab::live(&experiment, &LiveOptions::default(), &mut witness);
    let Some(outcome) = lab::allowed(result) else { return };
    let summary = outcome.unwrap().data.summary;
    let names: Vec<&str> = summary.flows.iter().map(|flow| flow.cc.as_str()).collect();
    assert_eq!(names, ["skyhop:cubic", "skyhop:cubic", "skyhop:bbr", "cubic"]);
    for flow in &summary.flows {
        assert!(flow.goodput_bps > 0, "{flow:?}");
    }
    // Two sets of parameters are two modules; the kernel's own cubic is not counted.
    let new = witness.seen.iter().filter(|name| !before.contains(name)).count();
    assert_eq!(new, 3, "{:?}", witness.seen);
    assert_eq!(skyhop_kernel::offered().unwrap(), before);
}

/// Smallest and largest window of the flow in an interval, in packets.
fn windows(outcome: &lab::LiveOutcome, from_ms: i64, until_ms: i64) -> (i64, i64) {
    let within = |row: &&skyhop_record::FlowSample| {
        (from_ms * 1_000_000..until_ms * 1_000_000).contains(&row.t_ns)
    };
    let rows = outcome.data.flows.iter().filter(within).map(|row| row.cwnd_packets);
    let (least, greatest) = rows.fold((i64::MAX, 0), |(l, g), cwnd| (l.min(cwnd), g.max(cwnd)));
    assert!(greatest > 0, "no samples from {from_ms} to {until_ms} ms");
    (least, greatest)
}

/// Phases reported by flow 0: kind, begin and end in ms.
fn phases(outcome: &lab::LiveOutcome) -> Vec<(EventKind, i64, i64)> {
    let told = outcome.data.events.iter().filter(|row| row.flow == Some(0));
    told.filter_map(|row| {
        let begin_ms = row.t_ns / 1_000_000;
        Some((row.kind, begin_ms, begin_ms + row.length_ns? / 1_000_000))
    })
    .collect()
}

#[test]
#[ignore = "soak: measures time"]
fn satpipe_drains_when_a_handover_is_announced_and_only_then() {
    if !possible() {
        return;
    }
    let mut experiment = with_flow("satpipe", serde_json::json!({}));
    experiment.duration = ms(3500);
    experiment.sample = ms(5);
    experiment.announcements = vec![Announcement {
        announced: at(1500),
        at: at(2000),
        outage: ms(50),
        error: ms(0),
        kind: HandoverKind::End,
    }];
    let Some(outcome) = lab::run(&experiment) else { return };
    let (before, drained, after) = (
        windows(&outcome, 1000, 1900),
        windows(&outcome, 2050, 2100),
        windows(&outcome, 2700, 3400),
    );
    let phases = phases(&outcome);
    let told =
        format!("before {before:?}, drained {drained:?}, after {after:?}; it says {phases:?}");
    // SatPipe's window is four while it drains; the path holds about twenty packets.
    let seen = before.0 > 8 && drained.0 <= 4 && after.1 > 8;
    // Drain lasts from 15 to 100 ms after the announced time, probing then 200 ms and a round trip; each begins with an
    // ACK, of which there is one per millisecond.
    let expected = [
        (EventKind::Phase(PhaseKind::Drain), 2015, 2100),
        (EventKind::Phase(PhaseKind::ProbeRtt), 2100, 2300),
    ];
    let near = |(phase, expected): (&(EventKind, i64, i64), &(EventKind, i64, i64))| {
        let late_ms = (phase.1 - expected.1, phase.2 - expected.2);
        phase.0 == expected.0 && (0..25).contains(&late_ms.0) && (0..60).contains(&late_ms.1)
    };
    let said = phases.len() == 2 && phases.iter().zip(&expected).all(near);
    assert!(seen && said, "{told}");
}

#[test]
#[ignore = "soak: kills"]
fn a_killed_run_leaves_nothing_in_the_kernel() {
    if !possible() {
        return;
    }
    let before = skyhop_kernel::offered().unwrap();
    let experiment = with_flow("skyhop:cubic", serde_json::json!({}));
    let mut witness = Witness { kills: true, ..Witness::default() };
    // Fork, so that the run's processes are the only children.
    let caller = forked(|| {
        let result = lab::live(&experiment, &LiveOptions::default(), &mut witness);
        let Some(result) = lab::allowed(result) else { return SKIPPED };
        assert!(matches!(result, Err(HostError::EngineDied { .. })), "{result:?}");
        assert!(witness.seen.iter().any(|name| !before.contains(name)), "{:?}", witness.seen);
        assert!(becomes_true(|| skyhop_kernel::offered().unwrap() == before));
        0
    });
    assert!(matches!(exit_status(caller), 0 | SKIPPED));
}

#[test]
fn unusable_congestion_controls_are_named_with_a_remedy() {
    let refused = |experiment: &Experiment| {
        let result = lab::live(experiment, &LiveOptions::default(), &mut Unattended);
        lab::allowed(result).map(|result| result.unwrap_err())
    };
    let Some(error) = refused(&with_flow("skyhop:nosuch", serde_json::json!({}))) else { return };
    assert!(error.is_input() && error.to_string().contains("nosuch"), "{error}");
    let error = refused(&with_flow("cubic", serde_json::json!({"beta": 0.5}))).unwrap();
    assert!(error.is_input() && error.to_string().contains("skyhop:cubic"), "{error}");
    if possible() {
        let wrong = with_flow("skyhop:cubic", serde_json::json!({"betta": 0.5}));
        let error = refused(&wrong).unwrap();
        assert!(error.is_input() && error.to_string().contains("beta"), "{error}");
    }
}
