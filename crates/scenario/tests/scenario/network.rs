//! Scenarios with `[network]`: the plan, its defaults, and what does not go with a network.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use skyhop_experiment::{Experiment, Traffic};
use skyhop_link::{Limit, Loss, QueueDiscipline};
use skyhop_model::{Compat, End};
use skyhop_orbit::Geodetic;
use skyhop_path::Place;
use skyhop_scenario::{Places, ScenarioError, parse_scenario, read_scenario, scenario_from_json};
use skyhop_units::{Duration, Instant, Rate, Ratio};

/// Cities with country, position and inhabitants in thousands, from the largest on.
const CITIES: [(&str, &str, f64, f64, u64); 6] = [
    ("Tokyo", "JP", 35.7, 139.7, 9_733),
    ("Cairo", "EG", 30.1, 31.2, 9_607),
    ("London", "GB", 51.5, -0.1, 8_962),
    ("New York City", "US", 40.7, -74.0, 8_804),
    ("Sydney", "AU", -33.9, 151.2, 4_628),
    ("London", "CA", 43.0, -81.2, 383),
];

/// Places of the tests: the cities above, and "lat,lon".
pub(crate) struct World;

impl Places for World {
    fn find(&self, text: &str) -> Result<Place, String> {
        if let Some((latitude, longitude)) = text.split_once(',')
            && let (Ok(latitude), Ok(longitude)) = (latitude.parse(), longitude.parse())
        {
            return Ok(place(text.to_owned(), latitude, longitude));
        }
        let [name, country, latitude, longitude] =
            city(text).ok_or(format!("unknown place \"{text}\""))?;
        Ok(place(
            format!("{name}, {country}"),
            latitude.parse().unwrap(),
            longitude.parse().unwrap(),
        ))
    }

    fn population(&self, text: &str) -> Option<u64> {
        CITIES.iter().find(|city| is_named(city, text)).map(|city| city.4 * 1000)
    }

    fn largest(&self, count: usize) -> Result<Vec<(Place, u64)>, String> {
        if count > CITIES.len() {
            return Err(format!("{count} cities; the list has {}", CITIES.len()));
        }
        let all = CITIES.iter().map(|(name, country, latitude, longitude, thousands)| {
            (place(format!("{name}, {country}"), *latitude, *longitude), thousands * 1000)
        });
        Ok(all.take(count).collect())
    }
}

fn is_named(city: &(&str, &str, f64, f64, u64), text: &str) -> bool {
    let (name, country, ..) = city;
    text == *name
        || text == format!("{name}, {country}")
        || (text == "New York" && *country == "US")
}

fn city(text: &str) -> Option<[String; 4]> {
    let found = CITIES.iter().find(|city| is_named(city, text))?;
    let (name, country, latitude, longitude, _) = found;
    Some([name.to_string(), country.to_string(), latitude.to_string(), longitude.to_string()])
}

fn place(name: String, latitude_deg: f64, longitude_deg: f64) -> Place {
    Place { name, position: Geodetic { latitude_deg, longitude_deg, altitude_m: 0.0 } }
}

/// Scenario of a short network; `keys` belong to `[network]`, and `rest` follows.
pub(crate) fn scenario(keys: &str, rest: &str) -> String {
    format!(
        "[network]\nconstellation = \"kuiper-630-hypatia\"\n{keys}\n{rest}\n[run]\nduration = \"2 s\"\n"
    )
}

pub(crate) fn planned(text: &str, origin: &str) -> Result<Experiment, ScenarioError> {
    parse_scenario(text, origin, &[])?.experiment(&World, &mut |_, _| ControlFlow::Continue(()))
}

pub(crate) fn error(text: &str) -> String {
    let message = planned(text, "x.toml").map(drop).unwrap_err().to_string();
    assert!(!message.contains('\n'), "one line: {message}");
    message
}

const SITES: &str =
    "sites = [\"London\", \"New York\", { name = \"X\", lat = 1, lon = 2.5, alt = 30 }, \"10,20\"]";

#[test]
fn a_network_is_planned() {
    let keys = format!(
        "{SITES}\nstart = \"2026-11-01T00:00:00Z\"\ninterval = \"500 ms\"\ngeo_avoidance = \"18 deg\""
    );
    let flows = "[[flow]]\nbetween = [\"X\", \"New York\"]\ncount = 2\nextra_rtt = \"10 ms\"\n\
                 [[flow]]\nkind = \"probe\"\nbetween = [\"London, GB\", \"10,20\"]\nstart = \"1 s\"";
    let experiment = planned(&scenario(&keys, flows), "x.toml").unwrap();
    assert!(experiment.links.is_empty() && experiment.changes.is_empty());
    let plan = experiment.network.as_ref().unwrap();
    let names: Vec<&str> = plan.request.sites.iter().map(|site| &*site.name).collect();
    assert_eq!(names, ["London, GB", "New York City, US", "X", "10,20"]);
    assert_eq!(
        plan.request.sites[2].position,
        Geodetic { latitude_deg: 1.0, longitude_deg: 2.5, altitude_m: 30.0 }
    );
    assert_eq!(plan.request.start.to_string(), "2026-11-01T00:00:00Z");
    assert_eq!(plan.request.every, Some(Duration::from_millis(500)));
    assert_eq!(plan.request.duration, Duration::from_secs(2));
    assert_eq!(plan.request.options.geo_avoidance_deg, Some(18.0));
    assert_eq!(plan.request.destinations, [0, 1, 2, 3]);
    assert_eq!(plan.satellites(), 34 * 34);
    assert_eq!(plan.link_names().len(), 2 * 34 * 34 + 34 * 34 + 4, "lasers, downlinks, uplinks");
    let flows: Vec<_> = experiment.flows.iter().map(|flow| (flow.id, flow.sites)).collect();
    assert_eq!(flows, [(0, Some([2, 1])), (1, Some([2, 1])), (2, Some([0, 3]))]);
    let [first, _, probe] = &experiment.flows[..] else { panic!() };
    assert_eq!((first.from, first.extra_rtt), (End::From, Duration::from_millis(10)));
    assert!(first.routes.is_empty() && matches!(first.traffic, Traffic::Tcp { .. }));
    assert_eq!(probe.start, Instant::START + Duration::from_secs(1));
    assert!(matches!(probe.traffic, Traffic::Udp { .. }));
}

#[test]
fn links_have_their_defaults_and_keys() {
    let of = |keys: &str| {
        let plan =
            planned(&scenario(&format!("{SITES}\n{keys}"), ""), "x.toml").unwrap().network.unwrap();
        [plan.hops.laser, plan.hops.down, plan.hops.up]
    };
    let rate = |hop: &skyhop_experiment::HopPlan| hop.config.schedule.rate[0].value;
    let [laser, down, up] = of("");
    let gbps = |gbps: u64| Rate::from_bits_per_second(gbps * 1_000_000_000);
    assert_eq!([&laser, &down, &up].map(rate), [gbps(10), gbps(1), gbps(1)]);
    for hop in [&laser, &down, &up] {
        assert_eq!(hop.config.queue, Limit::Packets(1000));
        assert_eq!(hop.queue.given, "1000 packets");
        assert_eq!(hop.config.schedule.loss[0].value, Loss::NONE);
        assert_eq!(hop.config.schedule.delay.len(), 1);
        assert_eq!(hop.config.schedule.delay[0].delay, Duration::ZERO);
    }
    let seeds = [&laser, &down, &up].map(|hop| hop.config.seed);
    assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2], "each kind of link has its own draws");
    let [laser, down, up] = of("lasers = { queue = \"20 ms\", loss = \"1 %\" }\n\
         user_links = { down = { rate = \"5 Mbit/s\", qdisc = \"codel\" }, up = { queue = \"3 MB\" } }");
    assert_eq!(laser.config.queue, Limit::Bytes(skyhop_units::Bytes::new(25_000_000)));
    assert_eq!(laser.config.schedule.loss[0].value, Loss::Independent(Ratio::new(0.01).unwrap()));
    assert_eq!(
        [&laser, &down, &up].map(rate),
        [gbps(10), Rate::from_bits_per_second(5_000_000), gbps(1)]
    );
    assert_ne!(down.config.qdisc, QueueDiscipline::default());
    assert_eq!(up.config.queue, Limit::Bytes(skyhop_units::Bytes::new(3_000_000)));
}

#[test]
fn a_network_may_stand_still_and_follow_hypatia() {
    let keys = format!("{SITES}\ninterval = \"never\"\ncompat = \"hypatia\"");
    let plan = planned(&scenario(&keys, ""), "x.toml").unwrap().network.unwrap();
    assert_eq!((plan.request.every, plan.request.compat), (None, Compat::Hypatia));
    assert!(plan.request.destinations.is_empty(), "there are no flows");
}

#[test]
fn sites_are_cities_by_size_or_come_from_a_file() {
    let of = |keys: &str, origin: &str| {
        let plan = planned(&scenario(keys, ""), origin).unwrap().network.unwrap();
        plan.request.sites.iter().map(|site| site.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("sites = \"top-3\"", "x.toml"), ["Tokyo, JP", "Cairo, EG", "London, GB"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("s.csv");
    fs::write(&file, "0,Tokyo,35.7,139.7,0\n1,Cairo,30,31,0\n").unwrap();
    let origin = directory.path().join("x.toml");
    assert_eq!(of("sites = \"s.csv\"", &origin.display().to_string()), ["Tokyo", "Cairo"]);
    assert!(of("sites = \"starlink-pops\"", "x.toml").len() > 10);
}

#[test]
fn a_resolved_network_gives_the_same_experiment_from_any_directory() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(
        directory.path().join("s.csv"),
        "name,lat,lon,population\nA,1,2,5\nB,30,40,6\nC,-9,8,7\n",
    )
    .unwrap();
    let keys = "sites = \"s.csv\"\n[network.traffic]\nkind = \"gravity\"\nflows = 5\ncc = \"bbr\"\ntcp.ecn = true\n\
                start_spread = \"100 ms\"\napp = { kind = \"page\" }";
    let flow = "[[flow]]\nbetween = [\"A\", \"C\"]";
    let origin = directory.path().join("x.toml").display().to_string();
    let first = planned(&scenario(keys, flow), &origin).unwrap();
    let sites = first.scenario["network"]["sites"].as_str().unwrap();
    assert!(Path::new(sites).is_absolute(), "{sites}");
    assert_eq!(
        first.scenario["network"]["start"],
        first.network.as_ref().unwrap().request.start.to_string()
    );
    assert!(first.scenario.get("path").is_none() && first.scenario.get("link").is_none());
    let again = scenario_from_json(&first.scenario.to_string(), "elsewhere", &[]).unwrap();
    let second = again.experiment(&World, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(first, second);
    let json = serde_json::to_string(&first).unwrap();
    assert_eq!(serde_json::from_str::<Experiment>(&json).unwrap(), first);
}

#[test]
fn what_does_not_go_with_a_network_is_refused_in_one_sentence() {
    let flow = "[[flow]]\nbetween = [\"London\", \"New York\"]\n";
    for (keys, rest, expected) in [
        (
            SITES,
            "[path]\nkind = \"fixed\"\nrtt = \"1 ms\"",
            "x.toml: network: is a second source of paths next to [path]; give one of the two",
        ),
        (
            SITES,
            "[link]\nrate = \"1 Mbit/s\"",
            "x.toml: link: does not go with [network]; expected network.lasers and network.user_links",
        ),
        (SITES, "[links.a]\nrtt = \"1 ms\"", "x.toml: links: does not go with [network]"),
        (
            SITES,
            "[[change]]\nat = \"1 s\"\noutage = \"1 s\"",
            "x.toml: change: does not go with [network]",
        ),
        (
            SITES,
            "[signal]\nsource = \"forecast\"",
            "x.toml: signal.source: does not go with [network]; expected \"path\", \"schedule\" or \"blind\"",
        ),
        (
            SITES,
            "[[flow]]",
            "x.toml: flow.0.between: is missing: the sites of the client and of the server, such as",
        ),
        (
            SITES,
            "[[flow]]\nbetween = [\"X\", \"X\"]",
            "x.toml: flow.0.between: is \"X\" twice; expected two sites",
        ),
        (
            SITES,
            "[[flow]]\nbetween = [\"London\", \"London, GB\"]",
            "x.toml: flow.0.between: is London, GB twice",
        ),
        (
            SITES,
            "[[flow]]\nbetween = [\"Londn\", \"X\"]",
            "x.toml: flow.0.between: there is no site \"Londn\" (did you mean London?); expected one of network.sites",
        ),
        (
            SITES,
            &format!("{flow}via = [\"other\"]"),
            "x.toml: flow.0.via: does not go with [network]; expected `between`",
        ),
        (SITES, &format!("{flow}from = \"to\""), "x.toml: flow.0.from: does not go with [network]"),
        (
            SITES,
            &format!(
                "{flow}app = {{ kind = \"dash\", controller = \"robust-mpc\", predicted = {{ oracle = {{}} }} }}"
            ),
            "x.toml: flow.0.app.predicted: needs the rate of a single path",
        ),
        ("sites = [\"London\"]", "", "x.toml: network.sites: has 1; expected 2 to 10000 sites"),
        ("sites = \"top-1\"", "", "x.toml: network.sites: has 1; expected 2 to 10000 sites"),
        (
            "sites = \"top-10001\"",
            "",
            "x.toml: network.sites: has 10001; expected 2 to 10000 sites",
        ),
        (
            "sites = \"top-ten\"",
            "",
            "x.toml: network.sites: is \"top-ten\"; expected a number of cities such as \"top-100\"",
        ),
        ("sites = \"top-7\"", "", "x.toml: network.sites: 7 cities; the list has 6"),
        (
            "sites = [\"London\", \"X\", \"London, GB\"]",
            "",
            "x.toml: network.sites.1: unknown place \"X\"",
        ),
        (
            "sites = [\"London\", \"Tokyo\", \"London, GB\"]",
            "",
            "x.toml: network.sites: has \"London, GB\" twice; expected sites with different names",
        ),
        (
            "sites = [\"London\", { name = \"X\", lat = 95.0, lon = 1.0 }]",
            "",
            "x.toml: network.sites.1: 95, 1 is not on Earth",
        ),
        (
            "sites = [\"London\", { name = \"X\", lat = 9.0, long = 1.0 }]",
            "",
            "x.toml: network.sites.1",
        ),
        (
            "sites = 3",
            "",
            "expected a list of sites, \"top-100\", a CSV file, or { grid = \"5 deg\" }",
        ),
        (
            "sites = \"starlink-pop\"",
            "",
            "x.toml: network.sites: unknown list of sites \"starlink-pop\" (did you mean starlink-pops?)",
        ),
        ("", "", "x.toml: network: missing field `sites`"),
    ] {
        let message = error(&scenario(keys, rest));
        assert!(message.contains(expected), "{keys} {rest}: {message}");
    }
    for (key, expected) in [
        (
            "interval = \"0 s\"",
            "x.toml: network.interval: is 0 s; expected a time above zero, or \"never\"",
        ),
        ("interval = \"500 ns\"", "x.toml: network.interval: makes 4,000,000 steps"),
        ("interval = \"often\"", "or \"never\""),
        (
            "compat = \"leoem\"",
            "x.toml: network.compat: is \"leoem\", which is for paths; expected \"none\" or \"hypatia\"",
        ),
        (
            "routing = \"long\"",
            "x.toml: network.routing.kind: unknown variant `long`, expected one of `shortest`, `snapshot`, `table`, `equal-cost`",
        ),
        ("lasers.rate = \"0 Mbit/s\"", "x.toml: network.lasers.rate: is 0; expected a rate"),
        (
            "user_links.up.queue = \"1 BDP\"",
            "x.toml: network.user_links.up.queue: is \"1 BDP\", but a network has no single round trip",
        ),
        (
            "user_links.down.queue = \"10 B\"",
            "x.toml: network.user_links.down.queue: \"10 B\" holds no packet",
        ),
        ("lasers.back = 1", "x.toml: network.lasers.back: unknown field `back`"),
        ("satellites = \"plane=1\"", "x.toml: network.satellites: names and planes"),
        ("minimum_elevation = \"91 deg\"", "x.toml: network.minimum_elevation: is 91 deg"),
        ("from = \"London\"", "x.toml: network.from: unknown field `from`"),
        ("traffic = { kind = \"all\" }", "x.toml: network.traffic.kind: unknown variant `all`"),
        ("traffic = { cc = \"bbr\" }", "x.toml: network.traffic: missing field `kind`"),
        ("traffic = { kind = \"gravity\" }", "x.toml: network.traffic: missing field `flows`"),
        (
            "traffic = { kind = \"pairing\", flows = 3 }",
            "x.toml: network.traffic.flows: does not belong",
        ),
        (
            "traffic = { kind = \"permutation\", cc = \"bbr\", cubic.beta = 0.7 }",
            "x.toml: network.traffic.cubic: is neither",
        ),
        (
            "traffic = { kind = \"permutation\", between = [\"X\", \"London\"] }",
            "x.toml: network.traffic.between: is for a [[flow]]",
        ),
        (
            "traffic = { kind = \"permutation\", start = \"3 s\" }",
            "x.toml: network.traffic.start: is 3 s, but the run ends at 2 s",
        ),
        (
            "traffic = { kind = \"permutation\", app = { kind = \"call\" } }",
            "x.toml: network.traffic.app.kind: ",
        ),
    ] {
        let message = error(&scenario(&format!("{SITES}\n{key}"), ""));
        assert!(message.contains(expected), "{key}: {message}");
    }
}

#[test]
fn unknown_constellations_get_the_error_of_a_path() {
    let message = error(&format!("[network]\nconstellation = \"kuipr\"\n{SITES}\n"));
    let expected =
        "x.toml: network.constellation: unknown constellation \"kuipr\" (did you mean kuiper?)";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn keys_of_a_network_need_one() {
    let fixed = "[path]\nkind = \"fixed\"\nrtt = \"1 ms\"\n[[flow]]\nbetween = [\"A\", \"B\"]\n";
    assert_eq!(
        error(fixed),
        "x.toml: flow.0.between: is for scenarios with [network]; over [path] and [links], a flow has `via`"
    );
    assert_eq!(error("[run]\nduration = \"2 s\"\n"), "x.toml: the scenario: missing field `path`");
    let network = parse_scenario(&scenario(SITES, ""), "x.toml", &[]).unwrap();
    let refused =
        network.path(&World, &mut |_, _| ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(
        refused.starts_with("x.toml: path: is missing: the scenario has a [network]"),
        "{refused}"
    );
    let refused = network.experiment_for_program(&World, &mut |_, _| ControlFlow::Continue(()));
    assert!(refused.unwrap_err().to_string().contains("path: is missing"));
}

#[test]
fn a_short_name_means_the_only_site_that_has_it() {
    let flows = |sites: &str, between: &str| {
        let keys = format!("interval = \"never\"\nsites = {sites}");
        let flow = format!("[[flow]]\nbetween = {between}");
        planned(&scenario(&keys, &flow), "x.toml").map(|planned| planned.flows[0].sites)
    };
    let one = "[\"Tokyo\", \"London, GB\"]";
    assert_eq!(flows(one, "[\"London\", \"Tokyo, JP\"]").unwrap(), Some([1, 0]));
    let two = "[\"London, CA\", \"London, GB\"]";
    assert_eq!(flows(two, "[\"London, GB\", \"London, CA\"]").unwrap(), Some([1, 0]));
    let message = flows(two, "[\"London\", \"London, CA\"]").unwrap_err().to_string();
    assert!(message.contains("there is no site \"London\" (did you mean London, "), "{message}");
    // A name that the scenario gives is that site, whatever others are called.
    let given = "[\"London, CA\", \"London\"]";
    assert_eq!(flows(given, "[\"London\", \"London, CA\"]").unwrap(), Some([1, 0]));
}

#[test]
fn too_many_flows_are_refused_before_they_are_planned() {
    let keys = format!("{SITES}\n[network.traffic]\nkind = \"permutation\"\ncount = 10000");
    let experiment = planned(&scenario(&keys, ""), "x.toml").unwrap();
    assert_eq!(experiment.flows.len(), 40_000);
    let keys = "sites = \"top-6\"\n[network.traffic]\nkind = \"permutation\"\ncount = 10000";
    let message = error(&scenario(keys, ""));
    assert!(message.contains("flow: makes 60,000 flows; at most 50,000"), "{message}");
}

#[test]
fn a_network_says_what_its_constellation_lacks() {
    let notes = |name: &str, keys: &str| {
        let text = format!(
            "[network]\nconstellation = \"{name}\"\n{SITES}\ninterval = \"never\"\n{keys}\n"
        );
        planned(&text, "x.toml").unwrap().notes
    };
    assert_eq!(notes("kuiper-630-hypatia", ""), Vec::<String>::new());
    let of_shells = notes("kuiper", "");
    assert!(
        of_shells.iter().any(|note| note.contains("no laser joins the 3 shells")),
        "{of_shells:?}"
    );
    assert_eq!(notes("kuiper", "isl_shells = \"apart\""), of_shells);
    assert_eq!(notes("kuiper", "isl_shells = \"nearest\""), Vec::<String>::new());
}

#[test]
fn the_example_is_planned() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/network.toml");
    let sets = ["run.duration=1 s".to_owned()];
    let anywhere = |text: &str| {
        let number = f64::from(text.bytes().map(u32::from).sum::<u32>() % 50);
        Ok(place(text.to_owned(), number, 2.0 * number))
    };
    let named = read_scenario(&file, &sets).unwrap();
    let experiment = named.experiment(&anywhere, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(experiment.flows.len(), 20);
    assert_eq!(experiment.network.unwrap().request.sites.len(), 20);
}

#[test]
fn sites_may_be_the_cells_of_a_grid() {
    let of = |keys: &str| {
        planned(&scenario(&format!("sites = {keys}"), ""), "x.toml").unwrap().network.unwrap()
    };
    let sites = of("{ grid = \"10 deg\", latitudes = [-30, 60] }").request.sites;
    // Rows from south to north, each with as many cells as are about as wide as high.
    let rows: Vec<(f64, usize)> = (0..9)
        .map(|row| -25.0 + 10.0 * f64::from(row))
        .map(|latitude| {
            let here =
                sites.iter().filter(|site| (site.position.latitude_deg - latitude).abs() < 1e-9);
            (latitude, here.count())
        })
        .collect();
    let expected = [33, 35, 36, 36, 35, 33, 29, 25, 21];
    assert_eq!(rows.iter().map(|(_, cells)| *cells).collect::<Vec<_>>(), expected);
    assert_eq!(sites.len(), expected.iter().sum::<usize>());
    assert_eq!(sites[0].position.longitude_deg, 360.0 / 33.0 / 2.0 - 180.0);
    assert_eq!((&*sites[0].name, &*sites[68].name), ("-25,-174.545", "-5,-175"));
    let all = of("{ grid = \"5 deg\" }").request.sites;
    assert!(all.iter().all(|site| site.position.latitude_deg.abs() < 60.0));
    assert_eq!(all.len(), 1432);
}

#[test]
fn cells_have_the_inhabitants_of_their_cities() {
    struct Cities;
    impl Places for Cities {
        fn find(&self, text: &str) -> Result<Place, String> {
            World.find(text)
        }

        fn largest(&self, _: usize) -> Result<Vec<(Place, u64)>, String> {
            World.largest(CITIES.len())
        }
    }
    let of = |keys: &str, traffic: &str| {
        let text = scenario(&format!("sites = {keys}\n[network.traffic]\n{traffic}"), "");
        let scenario = parse_scenario(&text, "x.toml", &[]).unwrap();
        scenario.experiment(&Cities, &mut |_, _| ControlFlow::Continue(())).unwrap()
    };
    let keys = "{ grid = \"20 deg\", latitudes = [-60, 60], populated = true }";
    let experiment = of(keys, "kind = \"permutation\"");
    let names: Vec<&str> =
        experiment.network.as_ref().unwrap().request.sites.iter().map(|site| &*site.name).collect();
    // Sydney, Cairo and Tokyo in rows of 16 cells, and in one of 12 London in Canada with New York, and London.
    assert_eq!(names, ["-30,146.25", "30,33.75", "30,146.25", "50,-75", "50,-15"]);
    assert_eq!(experiment.flows.len(), names.len());
    // Without `populated`, flows still run between cells with inhabitants alone.
    let experiment = of("{ grid = \"20 deg\" }", "kind = \"gravity\"\nflows = 200");
    let sites = &experiment.network.as_ref().unwrap().request.sites;
    let used: std::collections::BTreeSet<&str> = experiment
        .flows
        .iter()
        .flat_map(|flow| flow.sites.unwrap())
        .map(|site| &*sites[site as usize].name)
        .collect();
    assert!(used.is_subset(&names.iter().copied().collect()) && used.len() >= 4, "{used:?}");
}

#[test]
fn impossible_grids_are_refused_in_one_sentence() {
    for (keys, expected) in [
        ("{}", "network.sites: missing field `grid`"),
        (
            "{ grid = \"0 deg\" }",
            "network.sites.grid: is 0 deg; expected 0.2 deg to the 120 deg between the `latitudes`",
        ),
        (
            "{ grid = \"9 deg\", latitudes = [0, 8] }",
            "network.sites.grid: is 9 deg; expected 0.2 deg to the 8 deg",
        ),
        (
            "{ grid = \"9 deg\", latitudes = [8, 0] }",
            "network.sites.latitudes: is [8, 0]; expected two latitudes from -90 to 90, the southern one first",
        ),
        ("{ grid = \"1 deg\" }", "network.sites: has 35726; expected 2 to 10000 sites"),
        ("{ grid = \"5 deg\", land = true }", "network.sites.land: unknown field `land`"),
    ] {
        let message = error(&scenario(&format!("sites = {keys}"), ""));
        assert!(message.starts_with(&format!("x.toml: {expected}")), "{keys}: {message}");
    }
}
