//! Runs over a whole network.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use skyhop_app::{App, Bulk, Probe, TcpOptions};
use skyhop_engine::Engine as _;
use skyhop_experiment::{
    Experiment, FlowPlan, HopPlan, NetworkHops, NetworkPlan, QueueSize, Traffic,
};
use skyhop_link::{Limit, LinkConfig, LinkSchedule, QueueDiscipline};
use skyhop_model::{Compat, Counts as _, Dscp, End, LinuxLink, LiveDevice, LossReason};
use skyhop_orbit::Constellation;
use skyhop_path::failures::{Failure, Part, drawn_satellites};
use skyhop_path::network::NetworkRequest;
use skyhop_path::routing::RoutingKind;
use skyhop_path::{PathOptions, Place};
use skyhop_record::{EventRow, RunData};
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

/// The same rate and queue for the links of all kinds.
fn hops(hop: &HopPlan) -> NetworkHops {
    let [laser, down, up, gateway_down, gateway_up] = [0; 5].map(|_| hop.clone());
    NetworkHops { laser, down, up, gateway_down, gateway_up }
}

/// Kuiper's first shell with the cities; `flows` of (client, server, traffic).
pub(crate) fn experiment(duration: Duration, flows: Vec<(u32, u32, Traffic)>) -> Experiment {
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
        routing: RoutingKind::default(),
        roles: Vec::new(),
        has_lasers: true,
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
        network: Some(NetworkPlan::new(request, hops(&hop)).unwrap()),
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

pub(crate) fn tcp(cc: &str) -> Traffic {
    Traffic::Tcp {
        cc: cc.to_owned(),
        app: App::Bulk(Bulk::default()),
        options: TcpOptions::default(),
        parameters: Default::default(),
    }
}

pub(crate) fn run(experiment: &Experiment, threads: usize) -> RunData {
    let mut data = RunData::default();
    let mut control = skyhop_engine::Unattended;
    SimulatorOn { threads }.run(experiment, &mut data, &mut control).unwrap();
    // What differs from run to run.
    data.run = Value::Null;
    data
}

/// Each city sends to the next, and every third pair has a probe as well.
pub(crate) fn ring() -> Vec<(u32, u32, Traffic)> {
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
fn the_base_rtt_includes_a_flows_own_delay() {
    let flows = vec![(0, 1, tcp("reno")), (0, 1, tcp("reno"))];
    let mut experiment = experiment(Duration::from_secs(1), flows);
    experiment.flows[1].extra_rtt = Duration::from_millis(30);
    let flows = run(&experiment, 1).summary.flows;
    assert!(flows[0].base_rtt_mean_us > 10_000);
    assert_eq!(flows[1].base_rtt_mean_us, flows[0].base_rtt_mean_us + 30_000);
    assert!(flows[1].srtt_mean_us >= Some(flows[1].base_rtt_mean_us));
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

/// Probes between all cities in a ring, 10 ms apart, over a network with these failures.
fn probed(all: Vec<Failure>, threads: usize) -> RunData {
    let probe = Probe { interval: Duration::from_millis(10), size: Bytes::new(100) };
    let count = CITIES.len() as u32;
    let traffic = || Traffic::Udp { app: App::Probe(probe.clone()) };
    let flows = (0..count).map(|site| (site, (site + 1) % count, traffic())).collect();
    let mut experiment = experiment(Duration::from_secs(2), flows);
    let plan = experiment.network.take().unwrap();
    let mut request = plan.request;
    request.options.failures = all.into();
    experiment.network = Some(NetworkPlan::new(request, plan.hops).unwrap());
    run(&experiment, threads)
}

fn ms(time: u64) -> Instant {
    Instant::START + Duration::from_millis(time)
}

/// Losses of a run by their reason.
fn losses(data: &RunData, reason: LossReason) -> Vec<&EventRow> {
    data.events.iter().filter(|event| event.reason == Some(reason)).collect()
}

/// Check that each loss of a run is counted once at a link, and that probes were lost for no other reason.
fn check_conservation(data: &RunData) {
    let lost = data.events.iter().filter(|event| event.reason.is_some()).count() as u64;
    let at_links: u64 = data.link.iter().map(|sample| sample.drops.total()).sum();
    assert_eq!(lost, at_links);
    let (sent, unanswered) = data
        .summary
        .probes
        .iter()
        .fold((0, 0), |sum, probe| (sum.0 + probe.sent, sum.1 + probe.lost));
    let answered = data.probes.iter().filter(|probe| probe.rtt_ns.is_some()).count() as u64;
    // Probes that are on the way when the run ends count as neither.
    assert_eq!((answered + lost, unanswered), (sent, lost));
    assert!(sent >= 10 * 180, "{sent}");
}

#[test]
fn failures_lose_what_they_hit_and_routes_lead_around_them() {
    // A third of the satellites fails between two computations of the routes.
    let satellites = drawn_satellites(34 * 34, Ratio::new(0.3).unwrap(), 7);
    let failure =
        |number| Failure { part: Part::Satellite(number), from: ms(650), until: ms(1250) };
    let all: Vec<Failure> = satellites.into_iter().map(failure).collect();
    let data = probed(all.clone(), 1);
    check_conservation(&data);
    let [of_gone, of_route] =
        [LossReason::Dismantled, LossReason::Outage].map(|reason| losses(&data, reason));
    let at = |event: &&EventRow| event.t_ns / 1_000_000;
    assert!(!of_gone.is_empty() && of_gone.iter().all(|event| at(event) == 650), "{of_gone:?}");
    assert!(!of_route.is_empty(), "packets on their way to a failed satellite are lost");
    // Routes lead around the failed satellites from 700 ms on; a packet takes at most 300 ms.
    assert!(of_route.iter().all(|event| (650..1000).contains(&at(event))), "{of_route:?}");
    let whole = probed(Vec::new(), 1);
    check_conservation(&whole);
    assert!(losses(&whole, LossReason::Outage).is_empty());
    let mean_ns = |data: &RunData| {
        let rtts: Vec<i64> = data.probes.iter().filter_map(|probe| probe.rtt_ns).collect();
        rtts.iter().sum::<i64>() / rtts.len() as i64
    };
    assert!(mean_ns(&data) > mean_ns(&whole), "ways around are longer");
    for threads in [2, 4] {
        assert!(probed(all.clone(), threads) == data, "with {threads} threads");
    }
}

#[test]
fn a_failed_site_sends_and_receives_nothing() {
    let data = probed(vec![Failure { part: Part::Site(8), from: ms(500), until: ms(1000) }], 2);
    check_conservation(&data);
    // Flows 7 and 8 begin or end at the site.
    let answers = |flow: i32, from: u64, until: u64| {
        let times = from as i64 * 1_000_000..until as i64 * 1_000_000;
        let sent =
            data.probes.iter().filter(|probe| probe.probe == flow && times.contains(&probe.t_ns));
        sent.filter(|probe| probe.rtt_ns.is_some()).count()
    };
    for flow in [7, 8] {
        assert!(answers(flow, 0, 300) >= 29, "{flow}");
        assert_eq!(answers(flow, 500, 1000), 0, "{flow}");
        // Routes lead to the site again from 1 s on.
        assert!(answers(flow, 1010, 1500) >= 48, "{flow}");
    }
    assert!(answers(0, 500, 1000) >= 49, "other sites are not concerned");
    let lost = data.events.iter().filter(|event| event.reason.is_some());
    assert!(lost.clone().all(|event| [Some(7), Some(8)].contains(&event.flow)));
    assert!(lost.clone().any(|event| event.reason == Some(LossReason::Dismantled)));
    assert!(lost.clone().any(|event| event.reason == Some(LossReason::Outage)));
}

#[test]
fn a_failed_laser_loses_what_is_on_it() {
    let whole = probed(Vec::new(), 1);
    // The laser that carries most between two satellites.
    let mut carried: BTreeMap<u16, i64> = BTreeMap::new();
    let lasers = whole
        .begin
        .links
        .iter()
        .filter(|name| !name.ends_with("sites") && name.starts_with("satellite"));
    let count = lasers.count() as u16;
    for sample in whole.link.iter().filter(|sample| sample.link < count) {
        *carried.entry(sample.link).or_default() += sample.delivered_bytes;
    }
    let (link, _) = carried.iter().max_by_key(|(_, bytes)| **bytes).unwrap();
    let ends = whole.begin.links[usize::from(*link)].trim_start_matches("satellite ");
    let (one, other) = ends.split_once(" - ").unwrap();
    let part = Part::Laser(one.parse().unwrap(), other.parse().unwrap());
    let data = probed(vec![Failure { part, from: ms(1034), until: Instant::NEVER }], 1);
    check_conservation(&data);
    let lost: Vec<&EventRow> = data.events.iter().filter(|event| event.reason.is_some()).collect();
    assert!(lost.iter().all(|event| event.link == *link), "{lost:?}");
    let reasons: Vec<LossReason> = lost.iter().filter_map(|event| event.reason).collect();
    assert!(reasons.contains(&LossReason::Dismantled) && reasons.contains(&LossReason::Outage));
    assert!(lost.iter().all(|event| (1_034_000_000..1_200_000_000).contains(&event.t_ns)));
}
