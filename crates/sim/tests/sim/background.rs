//! Networks with a background: traffic without packets that shares the links.

use std::collections::BTreeMap;

use skyhop_app::{App, Probe};
use skyhop_experiment::{BackgroundPlan, Experiment, NetworkLink, Traffic};
use skyhop_model::Direction;
use skyhop_path::network::{Demand, Leg, LegBits};
use skyhop_record::{LinkSample, RunData};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

use crate::constellation::{experiment, ring, run, tcp};

const MBPS: u64 = 1_000_000;
const NEW_YORK: u32 = 6;
const LONDON: u32 = 8;

fn demand(from: u32, to: u32, rate_bps: u64) -> Demand {
    let rate = Rate::from_bits_per_second(rate_bps);
    Demand { from, to, rate, begins: Instant::START, ends: Instant::NEVER }
}

fn with(mut experiment: Experiment, demands: Vec<Demand>, burst: u32) -> Experiment {
    let most = Ratio::new(0.95).unwrap();
    let plan =
        BackgroundPlan { demands, recorded: Vec::new(), most, packet: Bytes::new(1514), burst };
    experiment.network.as_mut().unwrap().background = Some(plan);
    experiment
}

/// Network whose satellites stand still, with flows from New York to London.
fn still(duration: Duration, flows: Vec<Traffic>) -> Experiment {
    let pairs = flows.into_iter().map(|traffic| (NEW_YORK, LONDON, traffic)).collect();
    let mut experiment = experiment(duration, pairs);
    experiment.network.as_mut().unwrap().request.every = None;
    experiment
}

fn probe() -> Traffic {
    probe_of(100)
}

/// Probe with a payload of so many bytes.
fn probe_of(size: u64) -> Traffic {
    let probe = Probe { interval: Duration::from_millis(10), size: Bytes::new(size) };
    Traffic::Udp { app: App::Probe(probe) }
}

/// Background bytes of each link and direction, sample by sample.
fn carried(data: &RunData) -> BTreeMap<(String, Direction), Vec<i64>> {
    let mut carried: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for row in data.link.iter().filter(|row| row.background_bytes > 0) {
        let name = data.begin.links[usize::from(row.link)].clone();
        carried.entry((name, row.direction)).or_default().push(row.background_bytes);
    }
    carried
}

fn mean_rtt_ns(data: &RunData) -> f64 {
    let rtts: Vec<i64> = data.probes.iter().filter_map(|probe| probe.rtt_ns).collect();
    assert!(rtts.len() > 150, "{}", rtts.len());
    rtts.iter().sum::<i64>() as f64 / rtts.len() as f64
}

#[test]
fn a_background_of_nothing_changes_nothing() {
    let plain = run(&experiment(Duration::from_secs(1), ring()), 1);
    let empty = with(experiment(Duration::from_secs(1), ring()), Vec::new(), 1);
    assert!(run(&empty, 1) == plain);
    let zero = with(experiment(Duration::from_secs(1), ring()), vec![demand(0, 1, 0)], 1);
    assert!(run(&zero, 1) == plain);
    assert!(plain.link.iter().all(|row| row.background_bytes == 0));
}

#[test]
fn a_flow_gets_what_the_background_leaves() {
    let alone = run(&still(Duration::from_secs(10), vec![tcp("cubic")]), 1);
    let demands = vec![demand(NEW_YORK, LONDON, 5 * MBPS)];
    for burst in [0, 1] {
        let shared =
            with(still(Duration::from_secs(10), vec![tcp("cubic")]), demands.clone(), burst);
        let data = run(&shared, 1);
        let goodput = |data: &RunData| data.summary.flows[0].goodput_bps as f64 / 1e6;
        assert!(goodput(&alone) > 8.5, "{}", goodput(&alone));
        let rest = goodput(&data) / goodput(&alone);
        assert!((0.45..0.55).contains(&rest), "{} of {}", goodput(&data), goodput(&alone));
        let used: Vec<f64> = data
            .summary
            .links
            .values()
            .map(|link| link.utilisation.max(link.utilisation_back))
            .collect();
        let highest = used.iter().copied().fold(0.0, f64::max);
        // Bursts vary around the load, by which the background's bytes are counted.
        let most = if burst == 0 { 1.0005 } else { 1.01 };
        assert!((0.98..most).contains(&highest), "{used:?}");
        assert_eq!(data.summary.warnings, Vec::<String>::new());
    }
}

#[test]
fn links_carry_exactly_the_load_over_time() {
    let data = run(
        &with(
            still(Duration::from_secs(2), vec![probe()]),
            vec![demand(NEW_YORK, LONDON, 4 * MBPS), demand(LONDON, NEW_YORK, MBPS)],
            0,
        ),
        1,
    );
    let carried = carried(&data);
    let name = |site: &str| (format!("{site} - satellites"), Direction::Forward);
    // 4 Mbit/s are 50,000 bytes in 100 ms.
    assert_eq!(carried[&name("New York")], vec![50_000; 20]);
    assert_eq!(carried[&name("London")], vec![12_500; 20]);
    let [there, back] = [50_000, 12_500]
        .map(|bytes| carried.values().filter(|of_link| **of_link == vec![bytes; 20]).count());
    assert_eq!(there + back, carried.len(), "{carried:?}");
    // Both directions go over the same satellites.
    assert!(there == back && there >= 4, "{there} {back}");
    let used = &data.summary.links["New York - satellites"];
    assert!((0.4..0.42).contains(&used.utilisation), "{}", used.utilisation);
}

#[test]
fn packets_wait_for_bursts_and_not_for_an_even_load() {
    let demands = vec![demand(NEW_YORK, LONDON, 8 * MBPS)];
    let of = |size: u64, burst| {
        let probed = still(Duration::from_secs(20), vec![probe_of(size)]);
        let alone = mean_rtt_ns(&run(&probed, 1));
        let data = run(&with(probed, demands.clone(), burst), 1);
        (mean_rtt_ns(&data) - alone, carried(&data).len() as f64)
    };
    // Packets as large as those of the background wait at the first link alone, as in M/D/1 at a load of 0.8, to which
    // they add: it has sent them in a row to the others.
    let packet_ns = 1514.0 * 8.0 * 100.0;
    let (large_ns, _) = of(1472, 1);
    let share = 0.8 + packet_ns / 1e7;
    let expected_ns = packet_ns * share / (2.0 * (1.0 - share));
    assert!((large_ns / expected_ns - 1.0).abs() < 0.25, "{large_ns} of {expected_ns}");
    // Small packets wait for the one ahead of them at nearly every other link.
    let (small_ns, links) = of(100, 1);
    let each_ns = (small_ns - 2.0 * packet_ns) / (links - 1.0);
    let most_ns = packet_ns - 142.0 * 8.0 * 100.0;
    assert!((0.8..1.02).contains(&(each_ns / most_ns)), "{each_ns} of {most_ns}");
    // An even load leaves less than a packet's time in the way of small packets.
    let (even_ns, _) = of(100, 0);
    assert!((0.0..50_000.0).contains(&even_ns), "{even_ns}");
}

#[test]
fn the_number_of_threads_and_of_flows_in_front_changes_no_load() {
    let demands: Vec<Demand> =
        (0..10).map(|site| demand(site, (site + 3) % 10, 6 * MBPS)).collect();
    let shared = with(experiment(Duration::from_secs(2), ring()), demands.clone(), 1);
    let data = run(&shared, 1);
    for threads in [2, 4] {
        assert!(run(&shared, threads) == data, "with {threads} threads");
    }
    // Full queues lose some of a background. Next to probes alone nothing is lost: what goes up comes down.
    let probes = ring().into_iter().filter(|flow| matches!(flow.2, Traffic::Udp { .. })).collect();
    let data = run(&with(experiment(Duration::from_secs(2), probes), demands, 0), 1);
    let mut sums: BTreeMap<i64, [i64; 2]> = BTreeMap::new();
    for row in &data.link {
        let name = &data.begin.links[usize::from(row.link)];
        let [up, down] = sums.entry(row.t_ns).or_default();
        *up += if name.ends_with("- satellites") { row.background_bytes } else { 0 };
        *down += if name.ends_with("- sites") { row.background_bytes } else { 0 };
    }
    assert_eq!(sums.len(), 20);
    for (at, [up, down]) in sums {
        // Each device counts whole bytes.
        assert!(up > 500_000 && (up - down).abs() < 20, "at {at}: {up} up, {down} down");
    }
}

#[test]
fn a_warning_says_what_the_network_does_not_carry() {
    let data = run(
        &with(
            still(Duration::from_secs(1), vec![probe()]),
            vec![demand(NEW_YORK, LONDON, 19 * MBPS)],
            0,
        ),
        1,
    );
    let expected = "the network carries 50.0 % of its background: 0.0 % have no route, and 50.0 % exceed the share \
                    network.background.most of a link";
    assert_eq!(data.summary.warnings, [expected]);
    let up = &carried(&data)[&("New York - satellites".to_owned(), Direction::Forward)];
    // 95 % of 10 Mbit/s.
    assert_eq!(*up, vec![118_750; 10]);
}

/// Links of a run as an earlier one, by the names that its rows have.
fn recorded(experiment: &Experiment, data: &RunData) -> Vec<LegBits> {
    let links: Vec<NetworkLink> = experiment.network.as_ref().unwrap().links().collect();
    let sample = |row: &LinkSample| {
        let leg = match (links[usize::from(row.link)], row.direction) {
            (NetworkLink::Laser(from, to), Direction::Forward) => Leg::Laser(from, to),
            (NetworkLink::Laser(from, to), Direction::Back) => Leg::Laser(to, from),
            (NetworkLink::Down(satellite), _) => Leg::Down(satellite),
            (NetworkLink::Up(site), _) => Leg::Up(site),
            (link, _) => panic!("{link:?}"),
        };
        let until = Instant::from_nanos(row.t_ns as u64);
        let from = Instant::from_nanos(row.t_ns as u64 - 100_000_000);
        LegBits { from, until, leg, bits: 8 * (row.delivered_bytes + row.background_bytes) as u64 }
    };
    data.link.iter().map(sample).filter(|sample| sample.bits > 0).collect()
}

#[test]
fn a_recorded_run_loads_its_links_again() {
    let demands = vec![demand(NEW_YORK, LONDON, 8 * MBPS), demand(LONDON, NEW_YORK, 2 * MBPS)];
    let of = |demands, burst| with(still(Duration::from_secs(10), vec![probe()]), demands, burst);
    let data = [0, 1].map(|burst| run(&of(demands.clone(), burst), 1));
    let again = [0, 1].map(|burst| {
        let mut later = of(Vec::new(), burst);
        let recorded = recorded(&of(Vec::new(), 0), &data[burst as usize]);
        later.network.as_mut().unwrap().background.as_mut().unwrap().recorded = recorded;
        let found = run(&later, 1);
        assert!(run(&later, 2) == found, "with 2 threads");
        assert_eq!(found.summary.warnings, Vec::<String>::new());
        found
    });
    // What was a packet is background now; loads are rounded to bit/s.
    let bytes = |data: &RunData, is_earlier: i64| {
        let mut sums: BTreeMap<(u16, Direction), i64> = BTreeMap::new();
        for row in &data.link {
            let sum = sums.entry((row.link, row.direction)).or_default();
            *sum += row.background_bytes + is_earlier * row.delivered_bytes;
        }
        sums
    };
    let (earlier, later) = (bytes(&data[0], 1), bytes(&again[0], 0));
    assert!(earlier.values().filter(|sum| **sum > 2_000_000).count() > 8, "{earlier:?}");
    for (place, sum) in &earlier {
        assert!((later[place] - sum).abs() < 100, "{place:?}: {sum} {later:?}");
    }
    // Loads come over the same lasers, so that waits are those next to the demands.
    let [before, after] = [&data[1], &again[1]].map(mean_rtt_ns);
    let alone = mean_rtt_ns(&run(&still(Duration::from_secs(10), vec![probe()]), 1));
    assert!(((after - alone) / (before - alone) - 1.0).abs() < 0.2, "{alone} {before} {after}");
}
