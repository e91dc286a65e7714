//! Runs over a whole network.

use std::path::Path;

use serde_json::Value;
use skyhop_app::{App, Bulk, Probe, TcpOptions};
use skyhop_engine::Engine as _;
use skyhop_experiment::{Experiment, FlowPlan, HopPlan, NetworkPlan, QueueSize, Traffic};
use skyhop_link::{Limit, LinkConfig, LinkSchedule, QueueDiscipline};
use skyhop_model::{Compat, Dscp, End, LinuxLink, LiveDevice};
use skyhop_orbit::Constellation;
use skyhop_path::network::NetworkRequest;
use skyhop_path::{PathOptions, Place};
use skyhop_record::RunData;
use skyhop_sim::SimulatorOn;
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

const CITIES: [(&str, f64, f64); 10] = [
    ("Tokyo", 35.69, 139.69),
    ("Delhi", 28.66, 77.22),
    ("Shanghai", 31.22, 121.46),
    ("Sao Paulo", -23.55, -46.63),
    ("Mexico City", 19.43, -99.13),
    ("Cairo", 30.05, 31.25),
    ("New York", 40.71, -74.01),
    ("Lagos", 6.45, 3.39),
    ("London", 51.51, -0.13),
    ("Sydney", -33.87, 151.21),
];

/// Kuiper's first shell with the cities; `flows` of (client, server, traffic).
fn experiment(duration: Duration, flows: Vec<(u32, u32, Traffic)>) -> Experiment {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/constellations");
    let constellation = Constellation::load(&file.join("kuiper-630-hypatia.toml")).unwrap();
    let mut destinations: Vec<u32> = flows.iter().flat_map(|flow| [flow.0, flow.1]).collect();
    destinations.sort_unstable();
    destinations.dedup();
    let request = NetworkRequest {
        start: constellation.epoch,
        constellation,
        sites: CITIES.iter().map(|(name, lat, lon)| Place::new(name, *lat, *lon)).collect(),
        destinations,
        every: Some(Duration::from_millis(100)),
        duration,
        compat: Compat::Hypatia,
        options: PathOptions::default(),
    };
    let hop = HopPlan {
        config: LinkConfig {
            schedule: LinkSchedule::fixed(
                Duration::ZERO,
                Rate::from_bits_per_second(10_000_000),
                Ratio::ZERO,
            ),
            qdisc: QueueDiscipline::default(),
            queue: Limit::Packets(100),
            seed: 1,
        },
        queue: QueueSize::default(),
    };
    let flow = |(id, (client, server, traffic)): (u32, (u32, u32, Traffic))| FlowPlan {
        id,
        from: End::From,
        start: Instant::START,
        stop: Instant::START + duration,
        routes: Vec::new(),
        sites: Some([client, server]),
        extra_rtt: Duration::ZERO,
        dscp: Dscp::default(),
        traffic,
    };
    Experiment {
        scenario: Value::Null,
        notes: Vec::new(),
        links: Vec::new(),
        network: Some(NetworkPlan::new(request, [hop.clone(), hop.clone(), hop]).unwrap()),
        flows: (0..).zip(flows).map(flow).collect(),
        tcp: TcpOptions::default(),
        changes: Vec::new(),
        announcements: Vec::new(),
        blind: None,
        duration,
        sample: Duration::from_millis(100),
        seed: 1,
        force_size: false,
        device: LiveDevice::default(),
        linux_link: LinuxLink::default(),
        cc_files: Default::default(),
    }
}

fn tcp(cc: &str) -> Traffic {
    Traffic::Tcp {
        cc: cc.to_owned(),
        app: App::Bulk(Bulk::default()),
        options: TcpOptions::default(),
        parameters: Default::default(),
    }
}

fn run(experiment: &Experiment, threads: usize) -> RunData {
    let mut data = RunData::default();
    let mut control = skyhop_engine::Unattended;
    SimulatorOn { threads }.run(experiment, &mut data, &mut control).unwrap();
    // What differs from run to run.
    data.run = Value::Null;
    data
}

/// Each city sends to the next, and every third pair has a probe as well.
fn ring() -> Vec<(u32, u32, Traffic)> {
    let count = CITIES.len() as u32;
    let mut flows: Vec<_> = (0..count)
        .map(|site| (site, (site + 1) % count, tcp(["reno", "cubic"][site as usize % 2])))
        .collect();
    let probe = Probe { interval: Duration::from_millis(20), size: Bytes::new(100) };
    flows.extend(
        (0..count).step_by(3).map(|site| {
            (site, (site + 4) % count, Traffic::Udp { app: App::Probe(probe.clone()) })
        }),
    );
    flows
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let experiment = experiment(Duration::from_secs(3), ring());
    let alone = run(&experiment, 1);
    assert!(
        alone.summary.flows.iter().all(|flow| flow.goodput_bps > 500_000),
        "{:#?}",
        alone.summary.flows
    );
    assert!(alone.events.iter().any(|event| event.reason.is_some()), "queues overflow");
    for threads in [2, 4, 8] {
        let together = run(&experiment, threads);
        assert!(together == alone, "with {threads} threads");
    }
}

#[test]
fn probes_measure_the_base_rtt_of_their_route() {
    let probe = Probe { interval: Duration::from_millis(10), size: Bytes::new(100) };
    let flows = vec![(6, 8, Traffic::Udp { app: App::Probe(probe) })];
    let data = run(&experiment(Duration::from_secs(2), flows), 2);
    assert_eq!(data.summary.probes[0].lost, 0);
    let rtts: Vec<i64> = data.probes.iter().filter_map(|probe| probe.rtt_ns).collect();
    assert!(rtts.len() > 190, "{}", rtts.len());
    // New York and London are 5,570 km apart: the satellites' way is a little longer, and each of the hops takes
    // 0.1 ms to send a packet.
    assert!(rtts.iter().all(|rtt| (40_000_000..70_000_000).contains(rtt)), "{rtts:?}");
}
