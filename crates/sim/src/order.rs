//! Order and seeds of flows that do not depend on the order of flows in the scenario.

use skyhop_app::{App, Bulk, Probe, TcpOptions};
use skyhop_experiment::{FlowPlan, Route, Traffic};

/// Flows sorted by their properties, each with its seed. Equal flows are interchangeable.
///
/// Congestion control, ECN, DSCP and host settings do not enter the seed: a flow keeps its random numbers if only these
/// change from one scenario to another. Flows of one scenario that differ only in these get different seeds, which are
/// numbered in the order of the list.
pub(crate) fn seeded_in_order(run_seed: u64, flows: &[FlowPlan]) -> Vec<(&FlowPlan, u64)> {
    let mut plans: Vec<(String, &FlowPlan)> =
        flows.iter().map(|plan| (identity_but_cc(plan), plan)).collect();
    // The congestion control comes last, so that flows that differ in it alone are adjacent.
    plans.sort_by_cached_key(|(but_cc, plan)| format!("{but_cc} {:?}", plan.traffic));
    let mut seeded = Vec::with_capacity(plans.len());
    for alike in plans.chunk_by(|a, b| a.0 == b.0) {
        for (number, (but_cc, plan)) in alike.iter().enumerate() {
            let seed = skyhop_experiment::seed_for(run_seed, &format!("flow {but_cc} {number}"));
            seeded.push((*plan, seed));
        }
    }
    seeded
}

/// Text of all properties of a flow except its number, congestion control, ECN, DSCP and host settings.
fn identity_but_cc(plan: &FlowPlan) -> String {
    let FlowPlan { id: _, from, start, stop, routes, sites, extra_rtt, dscp: _, traffic } = plan;
    let sends = match traffic {
        Traffic::Tcp {
            cc: _,
            parameters: _,
            app: App::Bulk(Bulk { bytes, read_rate: None }),
            options,
        } if socket_options_text(&TcpOptions { ecn: false, ..*options })
            == socket_options_text(&TcpOptions::default()) =>
        {
            format!("tcp {bytes:?}")
        }
        Traffic::Tcp { cc: _, parameters: _, app, options } => {
            format!("tcp {app:?} {}", socket_options_text(options))
        }
        Traffic::Udp { app: App::Probe(Probe { interval, size }) } => {
            format!("probe {interval:?} {size:?}")
        }
        Traffic::Udp { app } => format!("udp {app:?}"),
    };
    // Seeds are hashes of this text, so any other text would give other random numbers.
    let ways: Vec<String> = routes
        .iter()
        .map(|Route { from, links }| format!("Way {{ from: {from:?}, links: {links:?} }}"))
        .collect();
    let ways = ways.join(", ");
    let sites = sites.map(|sites| format!(", {sites:?}")).unwrap_or_default();
    format!("({start:?}, {stop:?}, {from:?}, [{ways}], {extra_rtt:?}{sites}) {sends}")
}

/// Text of the socket options that enter the seed.
fn socket_options_text(options: &TcpOptions) -> String {
    let TcpOptions { ecn, nodelay, cork, keepalive, receive_buffer, .. } = options;
    format!(
        "TcpOptions {{ ecn: {ecn}, nodelay: {nodelay}, cork: {cork}, keepalive: {keepalive:?}, \
         receive_buffer: {receive_buffer:?} }}"
    )
}

#[cfg(test)]
mod tests {
    use skyhop_model::{Dscp, End};
    use std::collections::BTreeSet;

    use skyhop_experiment::seed_for;
    use skyhop_units::{Duration, Instant};

    use super::*;

    fn flow(id: u32, cc: &str, start_ms: u64) -> FlowPlan {
        let (app, options, parameters) = Default::default();
        let traffic = Traffic::Tcp { cc: cc.to_owned(), app, options, parameters };
        FlowPlan {
            id,
            from: End::From,
            start: Instant::START + Duration::from_millis(start_ms),
            stop: Instant::START + Duration::from_secs(10),
            routes: vec![Route { from: Instant::START, links: vec![0] }],
            sites: None,
            extra_rtt: Duration::ZERO,
            dscp: Dscp::default(),
            traffic,
        }
    }

    #[test]
    fn seeds_count_the_flows_that_differ_in_congestion_control_alone() {
        let flows = [flow(0, "cubic", 5), flow(1, "reno", 0), flow(2, "bbr", 0), flow(3, "bbr", 0)];
        let seed = |like: usize, number: usize| {
            seed_for(7, &format!("flow {} {number}", identity_but_cc(&flows[like])))
        };
        let seeded: Vec<_> =
            seeded_in_order(7, &flows).iter().map(|(plan, seed)| (plan.id, *seed)).collect();
        assert_eq!(seeded, [(2, seed(1, 0)), (3, seed(1, 1)), (1, seed(1, 2)), (0, seed(0, 0))]);
    }

    #[test]
    fn ten_thousand_alike_flows_have_seeds_of_their_own() {
        let flows: Vec<FlowPlan> = (0..10_000).map(|id| flow(id, "cubic", 0)).collect();
        let seeds: BTreeSet<u64> =
            seeded_in_order(1, &flows).into_iter().map(|(_, seed)| seed).collect();
        assert_eq!(seeds.len(), flows.len());
    }
}
