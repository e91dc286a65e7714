//! Plan of a network: its sites, its links, and the flows between the sites.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::iter::repeat_n;

use skyhop_experiment::{Experiment, FlowPlan, HopPlan, NetworkPlan, QueueSize, seed_for};
use skyhop_link::{Link, LinkConfig};
use skyhop_model::{Direction, DuringOutage, Relay};
use skyhop_orbit::Geodetic;
use skyhop_path::failures::Part;
use skyhop_path::network::NetworkRequest;
use skyhop_path::routing::RoutingKind;
use skyhop_path::{Endpoint, PathError, PathRequest, PathTrace, Place};
use skyhop_units::{Duration, Quoted, did_you_mean};

use crate::check_network::{hops, top_cities};
use crate::named::NamedScenario;
use crate::plan::failures::Fallible;
use crate::plan::grid::Grid;
use crate::plan::links::queue_limit;
use crate::plan::notes::shells_apart;
use crate::plan::places::FindPlace;
use crate::plan::schedule::{DirectionSettings, link_schedule};
use crate::types::{
    ConstellationPath, Flow, GridKeys, HopKeys, NetworkSection, PathKind, PathSection, Scenario,
    SiteKeys, Sites, TrafficKind,
};
use crate::{ScenarioError, catalogue};

/// Number of the most populous cities that make the population of cells.
const CITIES_OF_CELLS: usize = 10_000;

/// Round to three decimals, for names.
fn rounded(degrees: f64) -> f64 {
    (degrees * 1e3).round() / 1e3
}

/// Site of a network.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Site {
    pub(crate) place: Place,
    /// Name in the scenario, which may be shorter than that of the place.
    given: String,
    /// Inhabitants; looked up only for traffic that depends on them.
    pub(crate) population: Option<u64>,
}

/// Indices of sites by the names that the scenario gives, and by those of the places.
pub(crate) struct SitesByName<'s> {
    sites: &'s [Site],
    indices: HashMap<&'s str, u32>,
}

impl<'s> SitesByName<'s> {
    pub(crate) fn new(sites: &'s [Site]) -> Self {
        // Cities have names such as "London, GB"; "London" means one of them if there is no other.
        let mut short = HashMap::new();
        for (index, site) in (0..).zip(sites) {
            let (name, _) = site.place.name.split_once(", ").unwrap_or((&site.place.name, ""));
            short.entry(name).and_modify(|only| *only = None).or_insert(Some(index));
        }
        let mut indices: HashMap<&str, u32> =
            short.into_iter().filter_map(|(name, only)| Some((name, only?))).collect();
        // Whole names take precedence, and those that the scenario gives over all others.
        indices.extend((0..).zip(sites).map(|(index, site)| (&*site.place.name, index)));
        indices.extend((0..).zip(sites).map(|(index, site)| (&*site.given, index)));
        Self { sites, indices }
    }

    /// Index of a site. The error says that there is none.
    pub(crate) fn index(&self, name: &str) -> Result<u32, String> {
        self.indices.get(name.trim()).copied().ok_or_else(|| {
            let known = self.sites.iter().flat_map(|site| [&*site.given, &*site.place.name]);
            let hint = did_you_mean(name, known);
            format!("there is no site {}{hint}; expected one of network.sites", Quoted(name))
        })
    }
}

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
        let sites = self.sites(network, places)?;
        let flows = self.network_flows(network, &sites)?;
        self.check_flow_rows(&flows)?;
        let of_path = self.request_of_network(network, &sites)?;
        let (of_path, routing) = self.with_failures(network, of_path, &sites)?;
        let plan = self.network_plan(network, (of_path, routing), sites, &flows)?;
        self.check_failing_lasers(&plan)?;
        Ok(Experiment {
            scenario: self.resolved_network(&plan.request),
            notes: notes(&plan),
            changes: Vec::new(),
            announcements: Vec::new(),
            blind: None,
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

    /// Sites of the network, in the order of the scenario.
    fn sites(
        &self,
        network: &NetworkSection,
        places: FindPlace<'_>,
    ) -> Result<Vec<Site>, ScenarioError> {
        let kind = network.traffic.as_ref().map(|traffic| &traffic.kind);
        let needs_population = matches!(kind, Some(TrafficKind::Gravity(_)));
        let sites = match &network.sites {
            Sites::Named(name) => self.named_sites(name, places)?,
            Sites::Grid(keys) => self.grid_sites(keys, needs_population, places)?,
            Sites::Listed(listed) => {
                let site = |(index, site): (usize, &SiteKeys)| match site {
                    SiteKeys::Position(keys) => Ok(Site::from_row(keys.clone().into())),
                    SiteKeys::Place(name) => {
                        let place = places.find(name).map_err(|what| {
                            self.key_error(format!("network.sites.{index}"), what)
                        })?;
                        let known = needs_population.then(|| places.population(name));
                        Ok(Site { place, given: name.clone(), population: known.flatten() })
                    }
                };
                listed.iter().enumerate().map(site).collect::<Result<_, ScenarioError>>()?
            }
        };
        self.check_number_of_sites(sites.len())?;
        let mut names = HashSet::new();
        match sites.iter().find(|site| !names.insert(&site.place.name)) {
            Some(twice) => {
                let what = format!(
                    "has {} twice; expected sites with different names",
                    Quoted(&twice.place.name)
                );
                Err(self.key_error("network.sites", what))
            }
            None => Ok(sites),
        }
    }

    /// The most populous cities, or the sites of a list.
    fn named_sites(&self, name: &str, places: FindPlace<'_>) -> Result<Vec<Site>, ScenarioError> {
        let key = "network.sites";
        let Some(count) = top_cities(name) else {
            let rows = catalogue::site_list(name, self.base(), &self.origin, key)?;
            return Ok(rows.into_iter().map(Site::from_row).collect());
        };
        let cities = places.largest(count).map_err(|what| self.key_error(key, what))?;
        let site = |(place, population): (Place, u64)| Site {
            given: place.name.clone(),
            place,
            population: Some(population),
        };
        Ok(cities.into_iter().map(site).collect())
    }

    /// Centres of the cells of a grid, with the inhabitants of the cities in each.
    fn grid_sites(
        &self,
        keys: &GridKeys,
        needs_population: bool,
        places: FindPlace<'_>,
    ) -> Result<Vec<Site>, ScenarioError> {
        let grid = Grid::new(keys);
        let mut inhabitants = vec![0; grid.cells()];
        if needs_population || keys.populated {
            let cities = places.largest(CITIES_OF_CELLS);
            for (city, of_city) in cities.map_err(|what| self.key_error("network.sites", what))? {
                if let Some(cell) = grid.cell_at(city.position) {
                    inhabitants[cell] += of_city;
                }
            }
        }
        let cells = grid.centres().zip(inhabitants);
        let cells = cells.filter(|(_, inhabitants)| *inhabitants > 0 || !keys.populated);
        let site = |(position, inhabitants): (Geodetic, u64)| {
            let name =
                format!("{},{}", rounded(position.latitude_deg), rounded(position.longitude_deg));
            let place = Place { name: name.clone(), position };
            Site { place, given: name, population: Some(inhabitants) }
        };
        Ok(cells.map(site).collect())
    }

    /// Flows of `[[flow]]`, then those of `[network.traffic]`.
    fn network_flows(
        &self,
        network: &NetworkSection,
        sites: &[Site],
    ) -> Result<Vec<FlowPlan>, ScenarioError> {
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
            let pairs = self.traffic_pairs(&traffic.kind, sites)?;
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
        sites: &[Site],
    ) -> Result<(PathRequest, RoutingKind), ScenarioError> {
        let by_name = SitesByName::new(sites);
        let of = Fallible {
            constellation: &request.constellation,
            start: request.start,
            site: &|name| by_name.index(name),
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
        sites: Vec<Site>,
        flows: &[FlowPlan],
    ) -> Result<NetworkPlan, ScenarioError> {
        // Data and acknowledgements of a flow go to its two sites.
        let destinations: BTreeSet<u32> =
            flows.iter().filter_map(|flow| flow.sites).flatten().collect();
        let PathRequest { constellation, start, compat, duration, options, .. } = of_path;
        let request = NetworkRequest {
            constellation,
            sites: sites.into_iter().map(|site| site.place).collect(),
            destinations: destinations.into_iter().collect(),
            start,
            every: network.interval.0,
            duration,
            routing,
            compat,
            options,
        };
        let [laser, down, up] = hops(network);
        let hop =
            |(key, keys): (&str, &dyn HopKeys)| self.hop_plan(&format!("network.{key}"), keys);
        let wrong = |error: PathError| self.key_error("network", error.to_string());
        NetworkPlan::new(request, [hop(laser)?, hop(down)?, hop(up)?]).map_err(wrong)
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
        let network = &mut value["network"];
        network["start"] = serde_json::json!(request.start);
        self.make_paths_absolute(network, &["constellation", "sites"]);
        if let Some(routing) = network.get_mut("routing") {
            self.make_paths_absolute(routing, &["file"]);
        }
        if let Some(traffic) = network.get_mut("traffic") {
            self.make_paths_absolute(traffic, &["file"]);
            self.make_files_of_flow_absolute(traffic);
        }
        let flows = value.get_mut("flow").and_then(serde_json::Value::as_array_mut);
        flows.into_iter().flatten().for_each(|flow| self.make_files_of_flow_absolute(flow));
        value
    }
}

impl Site {
    fn from_row(row: catalogue::SiteRow) -> Self {
        let population = row.population.map(|inhabitants| inhabitants.round() as u64);
        Self { given: row.name.clone(), population, place: row.into_place() }
    }
}

/// Notes on features of the network that its constellation is not known to have, or does not have.
fn notes(plan: &NetworkPlan) -> Vec<String> {
    let constellation = &plan.request.constellation;
    let mut notes = Vec::new();
    if !constellation.isl {
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
