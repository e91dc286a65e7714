//! Comparison with Hypatia's published path, if this machine has it.

use skyhop_model::{Compat, Relay};
use std::fs;
use std::ops::ControlFlow;

use skyhop_orbit::Constellation;
use skyhop_path::handover::default_policy;
use skyhop_path::{
    OutageModel, PathOptions, PathRequest, PathTrace, Place, compute, default_intermediate_outage,
};
use skyhop_units::Duration;

const STEP: Duration = Duration::from_millis(100);

/// Read the lines of a published file as (ns, value); `None` if the file is missing.
fn published(name: &str) -> Option<Vec<(u64, String)>> {
    let text = fs::read_to_string(skyhop_needs::reference(&format!("hypatia/{name}"))?).unwrap();
    let row = |line: &str| {
        let (ns, value) = line.split_once(',').unwrap();
        (ns.parse().unwrap(), value.to_owned())
    };
    Some(text.lines().map(row).collect())
}

fn recomputed(steps: usize) -> PathTrace {
    let toml = include_str!("../../../../data/constellations/kuiper-630-hypatia.toml");
    let constellation = Constellation::parse(toml, "kuiper-630-hypatia.toml").unwrap();
    let request = PathRequest {
        start: constellation.epoch,
        constellation,
        from: Place::new("Manila", 14.6042, 120.9822),
        to: Place::new("Dalian", 38.913811, 121.602322),
        gateways: Vec::new(),
        relay: Some(Relay::Isl),
        handover: default_policy(Compat::Hypatia).to_owned(),
        outage: OutageModel::None,
        intermediate_outage: default_intermediate_outage(Compat::Hypatia),
        compat: Compat::Hypatia,
        step: STEP,
        duration: STEP * steps as u64,
        seed: 0,
        options: PathOptions::default(),
    };
    compute(&request, |_, _| ControlFlow::Continue(())).unwrap()
}

#[test]
fn manila_to_dalian_over_kuiper_has_the_published_rtt() {
    let Some(rtts) = published("kuiper630_manila_dalian_rtt.txt") else { return };
    let ours = recomputed(rtts.len());
    let mut largest_ns: f64 = 0.0;
    for ((ns, rtt_ns), frame) in rtts.iter().zip(&ours.frames) {
        assert_eq!(*ns, frame.at.as_nanos());
        let ours_ns = (frame.delay.unwrap() + frame.delay_back.unwrap()).as_nanos() as f64;
        largest_ns = largest_ns.max((ours_ns - rtt_ns.parse::<f64>().unwrap()).abs());
    }
    println!("largest difference of {} RTTs: {largest_ns:.0} ns", rtts.len());
    assert!(largest_ns < 1_000.0);
}

#[test]
fn manila_to_dalian_over_kuiper_takes_the_published_path() {
    let Some(changes) = published("kuiper630_manila_dalian_path.txt") else { return };
    let Some(rtts) = published("kuiper630_manila_dalian_rtt.txt") else { return };
    let ours = recomputed(rtts.len());
    let satellites = |path: &str| -> Vec<i32> {
        let nodes: Vec<i32> = path.split('-').map(|node| node.parse().unwrap()).collect();
        nodes[1..nodes.len() - 1].to_vec()
    };
    let same = ours.frames.iter().filter(|frame| {
        let (_, path) = changes.iter().rfind(|(ns, _)| *ns <= frame.at.as_nanos()).unwrap();
        frame.nodes[1..frame.nodes.len() - 1] == satellites(path)
    });
    let same = same.count();
    println!("{same} of {} steps have the published path", rtts.len());
    assert!(same as f64 >= 0.999 * rtts.len() as f64);
}
