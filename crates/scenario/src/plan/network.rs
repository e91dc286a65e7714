//! Plan of a network: its sites, its links, and the flows between the sites.

use std::collections::{BTreeSet, HashSet};
use std::iter::repeat_n;

use skyhop_experiment::{
    Experiment, FlowPlan, HopPlan, NetworkHops, NetworkPlan, QueueSize, seed_for,
};
use skyhop_link::{Link, LinkConfig};
use skyhop_model::{Direction, DuringOutage, Relay};
use skyhop_path::failures::Part;
use skyhop_path::network::NetworkRequest;
use skyhop_path::routing::RoutingKind;
use skyhop_path::{Endpoint, PathError, PathRequest, PathTrace, Place};
use skyhop_units::Duration;

use crate::ScenarioError;
use crate::check_network::hops;
use crate::named::NamedScenario;
use crate::plan::failures::Fallible;
use crate::plan::ground::{Ground, Site, SitesByName};
use crate::plan::links::queue_limit;
use crate::plan::notes::shells_apart;
use crate::plan::places::FindPlace;
use crate::plan::schedule::{DirectionSettings, link_schedule};
use crate::types::{
    BackgroundKind, ConstellationPath, DownlinkOf, Flow, HopKeys, NetworkRelay, NetworkSection,
    PathKind, PathSection, Scenario,
};

impl NamedScenario {
    /// Build the experiment of a scenario with `[network]`.
    ///
    /// # Errors
    /// Unknown names, files that cannot be read, or links that cannot be built.
    pub(crate) fn network_experiment(
        &self,
        network: &NetworkSection,
        places: FindPlace<'_>,
    ) -> Result<Experiment, ScenarioError> {
        let cc_files = self.load_cc_files()?.digests;
        let Scenario { run, tcp, live, linux, .. } = &self.scenario;
        let ground = self.ground(network, places)?;
        let flows = self.network_flows(network, &ground)?;
        self.check_flow_rows(&flows)?;
        let of_path = self.request_of_network(network, &ground.sites)?;
        let (of_path, routing) = self.with_failures(network, of_path, &ground)?;
        let background = network.background.as_ref();
        let background = background.map(|keys| self.background_plan(keys, &ground)).transpose()?;
        let plan = self.network_plan(network, (of_path, routing), ground, &flows)?;
        let mut plan = NetworkPlan { background, ..plan };
        self.check_failing_lasers(&plan)?;
        let scenario = self.resolved_network(&plan.request);
        if let Some(BackgroundKind::Run(keys)) = network.background.as_ref().map(|keys| &keys.kind)
        {
            let recorded = self.recorded_loads(keys, &plan, &scenario["network"])?;
            plan.background.iter_mut().for_each(|plan| plan.recorded.clone_from(&recorded));
        }
        Ok(Experiment {
            scenario,
            notes: notes(&plan),
            changes: Vec::new(),
            announcements: self.schedule_over(&plan.trace)?,
            blind: self.blind_plan(&plan.trace)?,
            links: Vec::new(),
            network: Some(plan),
            flows,
            tcp: tcp.values(),
            duration: run.duration,
            sample: run.sample,
            seed: run.seed,
            force_size: run.force_size,
            device: live.device,
            linux_link: linux.link,
            cc_files,
        })
    }

    /// Flows of `[[flow]]`, then those of `[network.traffic]`.
    fn network_flows(
        &self,
        network: &NetworkSection,
        ground: &Ground,
    ) -> Result<Vec<FlowPlan>, ScenarioError> {
        let sites = &ground.sites;
        let by_name = SitesByName::new(sites);
        let mut planned: Vec<(String, Flow, [u32; 2])> = Vec::new();
        for (entry, flow) in self.scenario.flow.iter().enumerate() {
            let key = format!("flow.{entry}");
            let between = flow.common.between.as_ref().map(|ends| ends.each_ref());
            let site = |name: &String| {
                let wrong = |what| self.key_error(format!("{key}.between"), what);
                by_name.index(name).map_err(wrong)
            };
            let [client, server] = between.map_or([Ok(0), Ok(1)], |ends| ends.map(site));
            let pair = [client?, server?];
            if pair[0] == pair[1] {
                let what =
                    format!("is {} twice; expected two sites", sites[pair[0] as usize].place.name);
                return Err(self.key_error(format!("{key}.between"), what));
            }
            planned.extend(repeat_n((key, flow.clone(), pair), flow.common.count as usize));
        }
        if let Some(traffic) = &network.traffic {
            let flow = traffic.flow();
            let count = flow.common.count as usize;
            let pairs = self.traffic_pairs(traffic, ground)?;
            self.check_number_of_flows(planned.len() + pairs.len().saturating_mul(count))?;
            let key = "network.traffic";
            for pair in pairs {
                planned.extend(repeat_n((key.to_owned(), flow.clone(), pair), count));
            }
        }
        let plan = |(id, (key, flow, pair)): (u32, (String, Flow, [u32; 2]))| {
            Ok(FlowPlan { sites: Some(pair), ..self.flow_plan(id, &key, &flow, Vec::new())? })
        };
        (0..).zip(planned).map(plan).collect()
    }

    /// Request for a path between the network's first and last site over its satellites.
    fn request_of_network(
        &self,
        network: &NetworkSection,
        sites: &[Site],
    ) -> Result<PathRequest, ScenarioError> {
        let NetworkSection { constellation, start, compat, satellites, .. } = network.clone();
        let keys = ConstellationPath {
            constellation,
            relay: Relay::Isl,
            start,
            compat,
            satellites,
            minimum_elevation: network.minimum_elevation,
            geo_avoidance: network.geo_avoidance,
            stale_after: network.stale_after,
            isl_seam: network.isl_seam,
            isl_clearance: network.isl_clearance,
            fibre_stretch: network.fibre_stretch,
            isl_shells: network.isl_shells,
            ..ConstellationPath::default()
        };
        let kind = PathKind::Constellation(Box::new(keys));
        let path = Some(PathSection { during_outage: None, dish: None, kind });
        let scenario = Scenario { path, network: None, ..self.scenario.clone() };
        let places: Vec<Place> = sites.iter().map(|site| site.place.clone()).collect();
        let request = Self { scenario, origin: self.origin.clone() }.pairs_request(&places);
        request.map_err(|error| error.moved("path", "network"))
    }

    /// Add the failures of `[[failure]]` to the request of a network with these sites, and find its routing.
    fn with_failures(
        &self,
        network: &NetworkSection,
        mut request: PathRequest,
        ground: &Ground,
    ) -> Result<(PathRequest, RoutingKind), ScenarioError> {
        let by_name = SitesByName::new(&ground.sites);
        let of = Fallible {
            constellation: &request.constellation,
            start: request.start,
            site: &|name| by_name.index(name),
            roles: &ground.roles,
        };
        let routing = self.routing_kind(&network.routing, of)?;
        request.options.failures = self.failures(&self.scenario.failure, of)?;
        Ok((request, routing))
    }

    /// Check that the lasers of `[[failure]]` exist at some time.
    fn check_failing_lasers(&self, plan: &NetworkPlan) -> Result<(), ScenarioError> {
        let lasers: HashSet<(u32, u32)> = plan.laser_links().collect();
        let mut failing = plan.request.options.failures.parts();
        let unknown = failing.find_map(|part| match part {
            Part::Laser(a, b) if !lasers.contains(&(a, b)) => Some((a, b)),
            _ => None,
        });
        match unknown {
            Some((a, b)) => {
                let what = format!("no laser joins the satellites {a} and {b} during the run");
                Err(self.key_error("failure", what))
            }
            None => Ok(()),
        }
    }

    fn network_plan(
        &self,
        network: &NetworkSection,
        (of_path, routing): (PathRequest, RoutingKind),
        Ground { sites, roles }: Ground,
        flows: &[FlowPlan],
    ) -> Result<NetworkPlan, ScenarioError> {
        // Data and acknowledgements of a flow go to its two sites.
        let destinations: BTreeSet<u32> =
            flows.iter().filter_map(|flow| flow.sites).flatten().collect();
        let PathRequest { constellation, start, compat, duration, options, .. } = of_path;
        let request = NetworkRequest {
            constellation,
            sites: sites.iter().map(|site| site.place.clone()).collect(),
            roles,
            has_lasers: network.relay == NetworkRelay::Isl,
            destinations: destinations.into_iter().collect(),
            start,
            every: network.interval.0,
            duration,
            routing,
            compat,
            options,
        };
        let hop =
            |(key, keys): (&str, &dyn HopKeys)| self.hop_plan(&format!("network.{key}"), keys);
        let [laser, down, up, gateway_down, gateway_up] = hops(network).map(hop);
        let hops = NetworkHops {
            laser: laser?,
            down: down?,
            up: up?,
            gateway_down: gateway_down?,
            gateway_up: gateway_up?,
        };
        let access = self.access_of_sites(network, &sites, &request)?;
        let wrong = |error: PathError| self.key_error("network", error.to_string());
        Ok(NetworkPlan {
            downlink_per_site: network.user_links.per == DownlinkOf::Site,
            access: access.schedules,
            announced: self.route_signal(access.events)?,
            ..NetworkPlan::new(request, hops).map_err(wrong)?
        })
    }

    /// Rate, queue and loss of the links of one kind, without delay.
    fn hop_plan(&self, key: &str, keys: &dyn HopKeys) -> Result<HopPlan, ScenarioError> {
        let given = keys.link_keys();
        let settings = DirectionSettings {
            direction: Direction::Forward,
            given: &given,
            rate_changes: true,
            during_outage: DuringOutage::Drop,
        };
        let ends = ["from", "to"].map(Endpoint::named);
        let trace = PathTrace::fixed(ends, Duration::ZERO, self.scenario.run.duration);
        let (schedule, values) = (link_schedule(&trace, &[], &settings), given.values());
        let queue = queue_limit(values.queue, values.rate, Duration::ZERO)
            .map_err(|what| self.key_error(format!("{key}.queue"), what))?;
        let seed = seed_for(self.scenario.run.seed, key);
        let config = LinkConfig { queue, qdisc: values.qdisc, seed, schedule };
        // The link is built once here, so that an invalid queue is found before anything runs.
        Link::<()>::new(config.clone()).map_err(|error| self.key_error(key, error.to_string()))?;
        let size = QueueSize::new(values.queue, queue, (values.rate, false), Duration::ZERO);
        Ok(HopPlan { config, queue: size })
    }

    /// Return the scenario with all defaults filled in and all file names absolute, for run.json.
    fn resolved_network(&self, request: &NetworkRequest) -> serde_json::Value {
        let mut value = self.scenario.to_json();
        self.resolve_signal(&mut value["signal"]);
        let network = &mut value["network"];
        network["start"] = serde_json::json!(request.start);
        self.make_paths_absolute(network, &["constellation", "sites", "gateways", "pops"]);
        if let Some(routing) = network.get_mut("routing") {
            self.make_paths_absolute(routing, &["file"]);
        }
        if let Some(traffic) = network.get_mut("traffic") {
            self.make_paths_absolute(traffic, &["file"]);
            self.make_files_of_flow_absolute(traffic);
        }
        if let Some(background) = network.get_mut("background") {
            self.make_paths_absolute(background, &["file"]);
            self.make_directory_absolute(background);
        }
        let flows = value.get_mut("flow").and_then(serde_json::Value::as_array_mut);
        flows.into_iter().flatten().for_each(|flow| self.make_files_of_flow_absolute(flow));
        value
    }
}

/// Notes on features of the network that its constellation is not known to have, or does not have.
fn notes(plan: &NetworkPlan) -> Vec<String> {
    let constellation = &plan.request.constellation;
    let mut notes = Vec::new();
    if plan.request.has_lasers && !constellation.isl {
        notes.push(format!(
            "{} has no links between satellites; the network is computed as if it had",
            constellation.name
        ));
    }
    notes.extend(shells_apart(&plan.request));
    notes.extend(failing_satellites(plan));
    notes
}

/// Note on the number of satellites that fail at some time of the run.
fn failing_satellites(plan: &NetworkPlan) -> Option<String> {
    let parts = plan.request.options.failures.parts();
    let count = parts.filter(|part| matches!(part, Part::Satellite(_))).count();
    (count > 0).then(|| format!("{count} of {} satellites fail", plan.satellites()))
}
