//! Tests of several links: chains, shared links, extra RTTs, changing routes, and the scope of announcements.

use skyhop_app::TcpOptions;
use skyhop_engine::conformance::check_engine;
use skyhop_experiment::{Experiment, FlowPlan, LinkPlan, Route, Traffic};
use skyhop_link::Limit;
use skyhop_live::LiveEngine;
use skyhop_model::{Counts, End, EventKind, HandoverKind, LossReason, PhaseKind};
use skyhop_signal::Announcement;
use skyhop_units::Instant;

use crate::kernel_cc::possible;
use crate::lab::{self, app, application, at, fixed, mbit, ms, probe, tcp};

/// Experiment with the path's link, 10 ms each way, and a second link of 15 ms, 20 Mbit/s and ten packets.
fn two_links() -> Experiment {
    let mut experiment = fixed(ms(10), mbit(50), ms(2500));
    let mut second = fixed(ms(15), mbit(20), ms(2500)).links.remove(0);
    second.forward.queue = Limit::Packets(10);
    experiment.links.push(LinkPlan { name: "second".to_owned(), ..second });
    experiment
}

fn over(links: &[u16]) -> Vec<Route> {
    vec![Route { from: Instant::START, links: links.to_vec() }]
}

#[test]
fn flows_cross_the_links_of_their_routes_and_no_others() {
    let mut experiment = two_links();
    let mut chain = tcp(0, End::From, "cubic", None);
    chain.routes = over(&[0, 1]);
    let mut off_path = tcp(1, End::To, "cubic", None);
    (off_path.routes, off_path.extra_rtt) = (over(&[1]), ms(40));
    let mut echo = probe(2, ms(10));
    echo.routes = over(&[0, 1]);
    experiment.flows = vec![chain, off_path, echo];
    let Some(outcome) = lab::run(&experiment) else { return };
    let summary = &outcome.data.summary;
    assert_eq!(outcome.data.begin.links, ["path", "second"]);
    let base_rtts: Vec<u64> = summary.flows.iter().map(|flow| flow.base_rtt_mean_us).collect();
    assert_eq!(base_rtts, [50_000, 70_000]);
    for flow in &summary.flows {
        assert!(flow.srtt_mean_us >= Some(flow.base_rtt_mean_us), "{flow:?}");
        assert!(flow.goodput_bps > 0, "{flow:?}");
    }
    let rtts = outcome.data.probes.iter().filter_map(|row| row.rtt_ns);
    assert!(rtts.min().is_some_and(|ns| ns >= 50_000_000));
    // Packets are dropped at the link whose queue is full.
    assert_eq!(summary.link.drops.total(), 0, "{:?}", summary.link.drops);
    let second = summary.links["second"].drops;
    assert!(second[LossReason::Queue] > 0 && second[LossReason::Queue] == second.total());
    let losses = outcome.data.events.iter().filter(|row| row.kind == EventKind::Loss);
    let rows: Vec<_> = losses.map(|row| (row.link, row.flow)).collect();
    assert!(rows.iter().all(|(link, flow)| *link == 1 && flow.is_some()), "{rows:?}");
    assert_eq!(rows.len() as u64, second.total());
    for count in outcome.packets {
        assert_eq!(count.enqueued, count.delivered + count.dropped + count.inside, "{count:?}");
        assert_eq!(count.inside, 0, "{count:?}");
    }
}

#[test]
#[ignore = "soak: measures time"]
fn a_flow_may_take_another_route() {
    let mut experiment = two_links();
    let mut echo = probe(0, ms(5));
    echo.routes.push(Route { from: at(1000), links: vec![1] });
    experiment.flows = vec![echo];
    let Some(outcome) = lab::run(&experiment) else { return };
    let median = |from_ms: i64, until_ms: i64| {
        let within = from_ms * 1_000_000..until_ms * 1_000_000;
        let rows = outcome.data.probes.iter().filter(|row| within.contains(&row.t_ns));
        lab::median(rows.filter_map(|row| row.rtt_ns).collect()) / 1_000_000
    };
    assert_eq!((median(0, 950), median(1050, 2400)), (20, 30));
}

#[test]
fn no_packet_overtakes_its_route() {
    let mut experiment = Experiment { duration: ms(1000), ..two_links() };
    let mut echo = probe(0, ms(5));
    echo.routes.push(Route { from: at(500), links: vec![1] });
    experiment.flows = vec![echo];
    let Some(outcome) = lab::run(&experiment) else { return };
    let least = |from_ms: i64, until_ms: i64| {
        let within = from_ms * 1_000_000..until_ms * 1_000_000;
        let rows = outcome.data.probes.iter().filter(|row| within.contains(&row.t_ns));
        rows.filter_map(|row| row.rtt_ns).min()
    };
    assert!(least(0, 500) >= Some(20_000_000) && least(500, 1000) >= Some(30_000_000));
}

#[test]
fn kernel_cc_of_flows_off_the_path_receive_no_announcement() {
    let Some(drained) = drained() else { return };
    assert!(drained.iter().all(|flow| *flow == Some(0)), "{drained:?}");
}

#[test]
#[ignore = "soak: measures time"]
fn kernel_cc_of_flows_over_the_path_receive_its_announcements() {
    let Some(drained) = drained() else { return };
    assert_eq!(drained, [Some(0)]);
}

/// Run one flow over the path and another off it; return the flows that drained before a handover.
fn drained() -> Option<Vec<Option<i32>>> {
    if !possible() {
        return None;
    }
    let mut experiment = two_links();
    let mut on_path = tcp(0, End::From, "satpipe", None);
    on_path.routes = over(&[0, 1]);
    let mut off_path = tcp(1, End::From, "satpipe", None);
    off_path.routes = over(&[1]);
    experiment.flows = vec![on_path, off_path];
    experiment.announcements = vec![Announcement {
        announced: at(1000),
        at: at(1500),
        outage: ms(20),
        error: ms(0),
        kind: HandoverKind::End,
    }];
    let outcome = lab::run(&experiment)?;
    let is_drain = |kind| kind == EventKind::Phase(PhaseKind::Drain);
    let drains = outcome.data.events.iter().filter(|row| is_drain(row.kind));
    Some(drains.map(|row| row.flow).collect())
}

#[test]
fn the_live_engine_conforms() {
    let mut experiment = two_links();
    let ask = r#"{"kind": "request-response", "response": "20 kB", "per_connection": 3}"#;
    let say = r#"{"kind": "constant-rate", "rate": "80 kbit/s"}"#;
    let over_tcp = |id: u32, json: &str| FlowPlan {
        stop: at(2000),
        ..application(id, End::From, "cubic", app(json), TcpOptions::default())
    };
    let bulk = tcp(0, End::From, "cubic", None);
    let load = r#"{"kind": "page", "objects": 3, "think": "300 ms"}"#;
    let play = r#"{"kind": "dash", "start_track": 0, "controller": "bba"}"#;
    experiment.flows = vec![
        bulk,
        probe(1, ms(10)),
        over_tcp(2, ask),
        over_tcp(3, say),
        over_tcp(4, load),
        over_tcp(5, play),
    ];
    let call = Traffic::Udp { app: app(r#"{"kind": "call", "video": "200 kbit/s"}"#) };
    experiment.flows.push(FlowPlan { id: 6, stop: at(2000), traffic: call, ..probe(6, ms(10)) });
    // Records a skip if this system does not allow runs.
    if lab::run(&Experiment { duration: ms(100), ..experiment.clone() }).is_some() {
        check_engine(&LiveEngine::default(), &experiment);
    }
}
