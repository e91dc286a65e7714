//! Places on the ground of a network: its sites, gateways and points of presence, with the links of single sites.

use std::collections::{BTreeMap, HashMap, HashSet};

use skyhop_access::Request;
use skyhop_experiment::seed_for;
use skyhop_link::LinkSchedule;
use skyhop_model::{Direction, DuringOutage};
use skyhop_orbit::Geodetic;
use skyhop_path::handover;
use skyhop_path::network::{NetworkRequest, Role};
use skyhop_path::{Endpoint, Frame, PathEvent, PathTrace, Place};
use skyhop_units::{Duration, Quoted, did_you_mean};

use crate::check_network::top_cities;
use crate::named::NamedScenario;
use crate::plan::grid::Grid;
use crate::plan::places::FindPlace;
use crate::plan::schedule::{DirectionSettings, link_schedule, rate_of};
use crate::types::{
    BackgroundKind, GridKeys, HopKeys, NetworkSection, SiteKeys, Sites, TrafficKind,
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
    /// Handover policy and access profile that the site's table gives.
    own: [Option<String>; 2],
}

/// All places on the ground: terminals, then gateways, then points of presence.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) sites: Vec<Site>,
    pub(crate) roles: Vec<Role>,
}

impl Ground {
    /// Number of terminals, which are the first sites.
    pub(crate) fn terminals(&self) -> usize {
        let is_terminal = |role: &&Role| matches!(role, Role::Terminal { .. });
        self.roles.iter().take_while(is_terminal).count()
    }
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
            format!(
                "there is no site {}{hint}; expected one of network.sites, gateways or pops",
                Quoted(name)
            )
        })
    }
}

impl NamedScenario {
    /// Places on the ground, in the order of the scenario.
    ///
    /// # Errors
    /// Unknown names, files that cannot be read, or two places with one name.
    pub(crate) fn ground(
        &self,
        network: &NetworkSection,
        places: FindPlace<'_>,
    ) -> Result<Ground, ScenarioError> {
        let kind = network.traffic.as_ref().map(|traffic| &traffic.kind);
        let background = network.background.as_ref().map(|background| &background.kind);
        let needs_population = matches!(kind, Some(TrafficKind::Gravity(_)))
            || matches!(background, Some(BackgroundKind::Gravity(_)));
        let mut sites = self.sites("network.sites", &network.sites, (places, needs_population))?;
        let least = if network.gateways.is_some() { 1 } else { 2 };
        self.check_number_of_sites("network.sites", sites.len(), least)?;
        let mut roles = Vec::with_capacity(sites.len());
        for (index, site) in sites.iter().enumerate() {
            let key = match &site.own[0] {
                Some(_) => format!("network.sites.{index}.handover"),
                None => "network.handover".to_owned(),
            };
            let name = site.own[0].as_ref().unwrap_or(&network.handover);
            let policy = handover::policy(name)
                .map_err(|unknown| self.key_error(key, unknown.to_string()))?;
            roles.push(Role::Terminal { handover: policy.name.to_owned() });
        }
        let others = [
            ("network.gateways", &network.gateways, Role::Gateway, "gateway"),
            ("network.pops", &network.pops, Role::PointOfPresence, "PoP"),
        ];
        for (key, list, role, noun) in others {
            let Some(list) = list else { continue };
            let mut found = self.sites(key, list, (places, false))?;
            self.check_number_of_sites(key, found.len(), 1)?;
            for place in &mut found {
                // Cities and their gateways often have the same name in lists.
                if sites.iter().any(|site| site.place.name == place.place.name) {
                    place.place.name = format!("{} ({noun})", place.place.name);
                    place.given = format!("{} ({noun})", place.given);
                }
            }
            roles.extend(found.iter().map(|_| role.clone()));
            sites.append(&mut found);
        }
        let mut names = HashSet::new();
        match sites.iter().find(|site| !names.insert(&site.place.name)) {
            Some(twice) => {
                let what = format!(
                    "has {} twice; expected sites with different names",
                    Quoted(&twice.place.name)
                );
                Err(self.key_error("network.sites", what))
            }
            None => Ok(Ground { sites, roles }),
        }
    }

    /// Sites that a key gives, in the order of the scenario.
    fn sites(
        &self,
        key: &str,
        given: &Sites,
        (places, needs_population): (FindPlace<'_>, bool),
    ) -> Result<Vec<Site>, ScenarioError> {
        match given {
            Sites::Named(name) => self.named_sites(key, name, places),
            Sites::Grid(keys) => self.grid_sites(key, keys, (places, needs_population)),
            Sites::Listed(listed) => {
                let site = |(index, site): (usize, &SiteKeys)| match site {
                    SiteKeys::Position(keys) => {
                        let own = [keys.handover.clone(), keys.access.clone()];
                        Ok(Site { own, ..Site::from_row(keys.clone().into()) })
                    }
                    SiteKeys::Place(name) => {
                        let place = places
                            .find(name)
                            .map_err(|what| self.key_error(format!("{key}.{index}"), what))?;
                        let known = needs_population.then(|| places.population(name));
                        Ok(Site::new(place, name.clone(), known.flatten()))
                    }
                };
                listed.iter().enumerate().map(site).collect()
            }
        }
    }

    /// The most populous cities, or the sites of a list.
    fn named_sites(
        &self,
        key: &str,
        name: &str,
        places: FindPlace<'_>,
    ) -> Result<Vec<Site>, ScenarioError> {
        let Some(count) = top_cities(name) else {
            let rows = catalogue::site_list(name, self.base(), &self.origin, key)?;
            return Ok(rows.into_iter().map(Site::from_row).collect());
        };
        let cities = places.largest(count).map_err(|what| self.key_error(key, what))?;
        let site = |(place, population): (Place, u64)| {
            let given = place.name.clone();
            Site::new(place, given, Some(population))
        };
        Ok(cities.into_iter().map(site).collect())
    }

    /// Centres of the cells of a grid, with the inhabitants of the cities in each.
    fn grid_sites(
        &self,
        key: &str,
        keys: &GridKeys,
        (places, needs_population): (FindPlace<'_>, bool),
    ) -> Result<Vec<Site>, ScenarioError> {
        let grid = Grid::new(keys);
        let mut inhabitants = vec![0; grid.cells()];
        if needs_population || keys.populated {
            let cities = places.largest(CITIES_OF_CELLS);
            for (city, of_city) in cities.map_err(|what| self.key_error(key, what))? {
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
            Site::new(place, name, Some(inhabitants))
        };
        Ok(cells.map(site).collect())
    }

    /// Links of each site with an access profile, drawn for each on its own.
    ///
    /// # Errors
    /// There is no such profile, or it takes too many changes of the links.
    pub(crate) fn access_of_sites(
        &self,
        network: &NetworkSection,
        sites: &[Site],
        request: &NetworkRequest,
    ) -> Result<SiteAccess, ScenarioError> {
        let links = &network.user_links;
        let mut access = SiteAccess::default();
        for (index, site) in (0..).zip(sites) {
            if !matches!(request.role(index), Role::Terminal { .. }) {
                continue;
            }
            let key = match &site.own[1] {
                Some(_) => format!("network.sites.{index}.access"),
                None => "network.user_links.access".to_owned(),
            };
            let Some(profile) = site.own[1].as_ref().or(links.access.as_ref()) else { continue };
            let ends = [&*site.place.name, "satellites"].map(Endpoint::named);
            let still = PathTrace::fixed(ends.clone(), Duration::ZERO, request.duration);
            let drawn = Request {
                ends,
                start: request.start,
                duration: request.duration,
                seed: seed_for(self.scenario.run.seed, &format!("access {}", site.place.name)),
                computed: Some(&still),
            };
            let trace = self.drawn_access(&key, profile, &drawn)?;
            let ways: [(&dyn HopKeys, Direction); 2] =
                [(&links.up, Direction::Forward), (&links.down, Direction::Back)];
            let schedule = ways.map(|(keys, direction)| own_schedule(&trace, keys, direction));
            access.schedules.insert(index, schedule);
            access.events.insert(index, trace.events().cloned().collect());
        }
        Ok(access)
    }
}

/// Links of the sites with an access profile, by the index of the site.
#[derive(Default)]
pub(crate) struct SiteAccess {
    /// Schedules of the uplink and the downlink.
    pub(crate) schedules: BTreeMap<u32, [LinkSchedule; 2]>,
    /// Handovers and outages, which are in both schedules.
    pub(crate) events: BTreeMap<u32, Vec<PathEvent>>,
}

/// Schedule of a site's link in one direction: rates and losses of the access profile where it has them.
fn own_schedule(trace: &PathTrace, keys: &dyn HopKeys, direction: Direction) -> LinkSchedule {
    let mut given = keys.link_keys();
    if trace.frames.iter().any(|frame| rate_of(trace, frame, direction).is_some()) {
        given.rate = None;
    }
    let loss_of = |frame: &Frame| match direction {
        Direction::Forward => frame.loss.is_some(),
        Direction::Back => frame.loss_back.is_some(),
    };
    if trace.frames.iter().any(loss_of) {
        given.loss = None;
    }
    let settings = DirectionSettings {
        direction,
        given: &given,
        rate_changes: false,
        during_outage: DuringOutage::Drop,
    };
    link_schedule(trace, &[], &settings)
}

impl Site {
    fn new(place: Place, given: String, population: Option<u64>) -> Self {
        Self { place, given, population, own: [None, None] }
    }

    /// Inhabitants. The error says that they are not known, and what to do.
    pub(crate) fn known_population(&self) -> Result<u64, String> {
        self.population.ok_or_else(|| {
            format!(
                "\"{}\" has no known population, and traffic of kind \"gravity\" needs it; write {{ name = \"X\", \
                 lat = …, lon = …, population = … }}, or take a file with a column population",
                self.place.name
            )
        })
    }

    fn from_row(row: catalogue::SiteRow) -> Self {
        let population = row.population.map(|inhabitants| inhabitants.round() as u64);
        let given = row.name.clone();
        Self::new(row.into_place(), given, population)
    }
}
