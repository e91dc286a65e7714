//! Failures of a network's parts: names of satellites, planes and sites become numbers, and shares are drawn.

use skyhop_experiment::seed_for;
use skyhop_orbit::{Constellation, Formation};
use skyhop_path::failures::{Failure, Failures, Part, drawn_satellites};
use skyhop_path::network::Role;
use skyhop_path::{PathRequest, Place};
use skyhop_units::{Duration, Instant, Quoted, UtcInstant, did_you_mean};
use toml::Value;

use crate::ScenarioError;
use crate::keys::read;
use crate::named::NamedScenario;
use crate::types::{FailingPart, FailureKeys, SatelliteKey};

/// Satellites and sites of a network that fails in parts.
#[derive(Clone, Copy)]
pub(crate) struct Fallible<'a> {
    pub(crate) constellation: &'a Constellation,
    pub(crate) start: UtcInstant,
    /// Index of a site by its name. The error says that there is none.
    pub(crate) site: &'a dyn Fn(&str) -> Result<u32, String>,
    /// Role of each site; sites after the last role are terminals.
    pub(crate) roles: &'a [Role],
}

impl NamedScenario {
    /// Check the entries of `[[failure]]` as far as their keys tell.
    pub(crate) fn check_failures(&self, entries: &[FailureKeys]) -> Result<(), ScenarioError> {
        let run = self.scenario.run.duration;
        for (index, keys) in entries.iter().enumerate() {
            let wrong = |name: &str, what: String| {
                let steps = [&format!("failure.{index}"), name];
                let given = steps.into_iter().filter(|step| !step.is_empty());
                self.key_error(given.collect::<Vec<_>>().join("."), what)
            };
            keys.part().map_err(|(name, what)| wrong(name, what))?;
            let from = keys.from.unwrap_or(Duration::ZERO);
            if from >= run {
                return Err(wrong("from", format!("is {from}, but the run ends at {run}")));
            }
            if keys.until.is_some_and(|until| until <= from) {
                return Err(wrong("until", format!("is not after the failure's begin at {from}")));
            }
        }
        Ok(())
    }

    /// Build the request of [`NamedScenario::pairs_request`] with failures: `entries` is a JSON list of tables as
    /// `[[failure]]` has them, and a `site` is one of `sites`.
    ///
    /// # Errors
    /// The errors of [`NamedScenario::pairs_request`], and entries that are wrong.
    pub fn pairs_request_with_failures(
        &self,
        sites: &[Place],
        entries: &str,
    ) -> Result<PathRequest, ScenarioError> {
        let wrong = |what: String| self.key_error("failure", what);
        let entries: Value =
            serde_json::from_str(entries).map_err(|error| wrong(error.to_string()))?;
        let entries: Vec<FailureKeys> = read(entries)
            .map_err(|error| self.key_error(format!("failure.{}", error.key), error.what))?;
        self.check_failures(&entries)?;
        let mut request = self.pairs_request(sites)?;
        let index = |name: &str| {
            let known = || sites.iter().map(|site| &*site.name);
            let found = (0..).zip(known()).find(|(_, site)| *site == name);
            let hint = || did_you_mean(name, known());
            found
                .map(|(index, _)| index)
                .ok_or_else(|| format!("there is no site {}{}", Quoted(name), hint()))
        };
        let of = Fallible {
            constellation: &request.constellation,
            start: request.start,
            site: &index,
            roles: &[],
        };
        request.options.failures = self.failures(&entries, of)?;
        Ok(request)
    }

    /// Failures of the parts that the entries name.
    ///
    /// # Errors
    /// There is no such satellite, plane or site.
    pub(crate) fn failures(
        &self,
        entries: &[FailureKeys],
        of: Fallible<'_>,
    ) -> Result<Failures, ScenarioError> {
        let mut failures = Vec::new();
        for (index, keys) in entries.iter().enumerate() {
            let seed = seed_for(keys.seed.unwrap_or(self.scenario.run.seed), "failures");
            let parts = keys.part().and_then(|part| of.parts(part, seed));
            let parts = parts
                .map_err(|(name, what)| self.key_error(format!("failure.{index}.{name}"), what))?;
            let from = Instant::START + keys.from.unwrap_or(Duration::ZERO);
            let until = keys.until.map_or(Instant::NEVER, |until| Instant::START + until);
            failures.extend(parts.into_iter().map(|part| Failure { part, from, until }));
        }
        Ok(failures.into())
    }
}

impl Fallible<'_> {
    /// Parts that fail together. The error is the wrong key and what is wrong with it.
    fn parts(self, part: FailingPart<'_>, seed: u64) -> Result<Vec<Part>, (&'static str, String)> {
        let satellites = |numbers: Vec<u32>| numbers.into_iter().map(Part::Satellite).collect();
        match part {
            FailingPart::Satellite(key) => {
                let number = self.satellite(key).map_err(|what| ("satellite", what))?;
                Ok(vec![Part::Satellite(number)])
            }
            FailingPart::Plane { shell, plane } => self.plane(shell, plane).map(satellites),
            FailingPart::Site(name) => {
                let index = (self.site)(name).map_err(|what| ("site", what))?;
                Ok(vec![Part::Site(index)])
            }
            FailingPart::Gateway(name) => {
                let index = (self.site)(name).map_err(|what| ("gateway", what))?;
                if self.roles.get(index as usize) != Some(&Role::Gateway) {
                    let what = format!("is {}, which is no gateway; write site", Quoted(name));
                    return Err(("gateway", what));
                }
                Ok(vec![Part::Site(index)])
            }
            FailingPart::Laser([one, other]) => {
                let number =
                    |key: &SatelliteKey| self.satellite(key).map_err(|what| ("laser", what));
                let ends = [number(one)?, number(other)?];
                if ends[0] == ends[1] {
                    return Err(("laser", format!("is {one} twice; expected two satellites")));
                }
                Ok(vec![Part::Laser(ends[0], ends[1])])
            }
            FailingPart::Share(share) => {
                Ok(satellites(drawn_satellites(self.constellation.satellites(), share, seed)))
            }
        }
    }

    /// Number of a satellite.
    pub(crate) fn satellite(self, key: &SatelliteKey) -> Result<u32, String> {
        let count = self.constellation.satellites();
        let name = match key {
            SatelliteKey::Number(number) if *number < count => return Ok(*number),
            SatelliteKey::Number(number) => {
                return Err(format!("is {number}; expected a number below {count}"));
            }
            SatelliteKey::Name(name) => name,
        };
        let constellation = self.constellation;
        let geostationary = constellation.geostationary.iter().map(|satellite| &*satellite.name);
        let names = geostationary.chain(constellation.element_sets.iter().map(|set| set.name()));
        let first = count - names.clone().count() as u32;
        match (first..).zip(names.clone()).find(|(_, known)| known == name) {
            Some((number, _)) => Ok(number),
            None if first == count => Err(format!(
                "is {}, but the satellites of {} have no names; expected a number below {count}",
                Quoted(name),
                constellation.name
            )),
            None => {
                let hint = did_you_mean(name, names);
                Err(format!("there is no satellite {}{hint}", Quoted(name)))
            }
        }
    }

    /// Satellites of a plane. The error is the wrong key and what is wrong with it.
    fn plane(self, shell: u32, plane: u32) -> Result<Vec<u32>, (&'static str, String)> {
        let of_shells = self.planes_of_shells();
        let Some(planes) = of_shells.get(shell as usize) else {
            let what = format!("is {shell}; expected a number below {}", of_shells.len());
            return Err(("shell", what));
        };
        planes.get(plane as usize).cloned().ok_or_else(|| {
            ("plane", format!("is {plane}; expected a number below {}", planes.len()))
        })
    }

    /// Satellites of each plane of each shell; the shells of element sets follow the others.
    fn planes_of_shells(self) -> Vec<Vec<Vec<u32>>> {
        let mut first = 0;
        let mut shells = Vec::new();
        for shell in &self.constellation.shells {
            let size = shell.satellites_per_plane;
            let plane = |plane: u32| (first + plane * size..first + (plane + 1) * size).collect();
            shells.push((0..shell.planes).map(plane).collect());
            first += shell.satellites();
        }
        first += self.constellation.geostationary.len() as u32;
        let formation = Formation::recover(&self.constellation.element_sets, self.start);
        for shell in formation.shells {
            let planes = shell.planes.into_iter();
            let numbers =
                planes.map(|plane| plane.satellites.iter().map(|one| first + one.id).collect());
            shells.push(numbers.collect());
        }
        shells
    }
}
