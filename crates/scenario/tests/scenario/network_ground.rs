//! Gateways, points of presence, handover policies and access profiles of a network's sites.

use skyhop_experiment::{NetworkLink, NetworkPlan};
use skyhop_link::LinkSchedule;
use skyhop_path::failures::Part;
use skyhop_path::network::Role;
use skyhop_units::{Duration, Rate};

use crate::network::{error, planned, scenario};

const GROUND: &str = "sites = [\"London\", \"Tokyo\", { name = \"X\", lat = 50.0, lon = 10.0, handover = \"sticky\" }]\n\
                      gateways = [\"London\", { name = \"G\", lat = 48.0, lon = 11.0 }]\n\
                      pops = [\"Sydney\", \"London\"]\nhandover = \"nearest-grid\"";

fn plan(keys: &str, rest: &str) -> NetworkPlan {
    planned(&scenario(keys, rest), "x.toml").unwrap().network.unwrap()
}

fn terminal(handover: &str) -> Role {
    Role::Terminal { handover: handover.to_owned() }
}

#[test]
fn gateways_and_points_of_presence_follow_the_sites() {
    let rest = "[network.traffic]\nkind = \"internet\"\ncount = 2\n\
                [[flow]]\nbetween = [\"G\", \"London (PoP)\"]\n\
                [[failure]]\ngateway = \"London (gateway)\"";
    let experiment = planned(&scenario(GROUND, rest), "x.toml").unwrap();
    let plan = experiment.network.unwrap();
    let names: Vec<&str> = plan.request.sites.iter().map(|site| &*site.name).collect();
    let expected = [
        "London, GB",
        "Tokyo, JP",
        "X",
        "London, GB (gateway)",
        "G",
        "Sydney, AU",
        "London, GB (PoP)",
    ];
    assert_eq!(names, expected);
    let roles = [
        terminal("nearest-grid"),
        terminal("nearest-grid"),
        terminal("sticky"),
        Role::Gateway,
        Role::Gateway,
        Role::PointOfPresence,
        Role::PointOfPresence,
    ];
    assert_eq!(plan.request.roles, roles);
    // London and X are nearest to the point of presence in London, Tokyo to that in Sydney.
    let pairs: Vec<[u32; 2]> = experiment.flows.iter().filter_map(|flow| flow.sites).collect();
    assert_eq!(pairs, [[4, 6], [6, 0], [6, 0], [5, 1], [5, 1], [6, 2], [6, 2]]);
    let pairs = |keys: &str| -> Vec<[u32; 2]> {
        let rest = format!("[network.traffic]\nkind = \"internet\"\n{keys}");
        let flows = planned(&scenario(GROUND, &rest), "x.toml").unwrap().flows;
        flows.iter().filter_map(|flow| flow.sites).collect()
    };
    assert_eq!(pairs("upload = true"), [[0, 6], [1, 5], [2, 6]]);
    assert_eq!(pairs("app = { kind = \"page\" }"), [[0, 6], [1, 5], [2, 6]]);
    assert!(plan.request.options.failures.parts().eq([Part::Site(3)]));
    let kinds: Vec<&str> = plan.kinds().map(|(name, _)| name).collect();
    let expected =
        ["lasers", "user_links.down", "user_links.up", "gateway_links.down", "gateway_links.up"];
    assert_eq!(kinds, expected);
    let satellites = plan.satellites() as usize;
    assert_eq!(plan.link_count(), 2 * satellites + satellites + 7 + satellites);
    assert_eq!(plan.link_names().last().unwrap(), "satellite 1155 - gateways");
    let gbps = |link: NetworkLink| plan.schedule(link).rate[0].value;
    assert_eq!(gbps(NetworkLink::Up(3)), Rate::from_bits_per_second(10_000_000_000));
    assert_eq!(gbps(NetworkLink::Up(0)), Rate::from_bits_per_second(1_000_000_000));
}

#[test]
fn a_bent_pipe_network_has_no_lasers() {
    let plan = plan(&format!("{GROUND}\nrelay = \"bent-pipe\""), "");
    assert!(plan.lasers.is_empty() && !plan.request.has_lasers);
    assert_eq!(plan.link_names()[0], "satellite 0 - sites");
}

#[test]
fn sites_can_have_downlinks_and_access_profiles_of_their_own() {
    let rest = "[network.user_links]\nper = \"site\"\naccess = \"starlink\"\n\
                down = { rate = \"70 Mbit/s\" }";
    let of_all = plan(GROUND, rest);
    assert!(of_all.downlink_per_site);
    assert_eq!(of_all.access.keys().copied().collect::<Vec<u32>>(), [0, 1, 2]);
    assert_eq!(
        of_all.link_names()[of_all.link_count() - 3..],
        ["satellites - London, GB", "satellites - Tokyo, JP", "satellites - X"]
    );
    let schedule = |link: NetworkLink| -> &LinkSchedule { of_all.schedule(link) };
    let [london, tokyo] = [0, 1].map(|site| schedule(NetworkLink::OwnDown(site)));
    let of_london = schedule(NetworkLink::Up(0));
    assert!(of_london.delay.len() > 10, "waits of the profile, {}", of_london.delay.len());
    assert!(london.rate.len() > 10, "rates of the profile, {}", london.rate.len());
    assert_ne!(london.rate, tokyo.rate, "each site has its own draws");
    assert_ne!(london.rate, of_london.rate, "directions differ");
    // A site's own profile, without one for all.
    let own =
        "sites = [\"London\", { name = \"X\", lat = 50.0, lon = 10.0, access = \"starlink\" }]";
    let of_one = plan(own, "[network.user_links]\nper = \"site\"\ndown = { rate = \"70 Mbit/s\" }");
    assert_eq!(of_one.access.keys().copied().collect::<Vec<u32>>(), [1]);
    let without = of_one.schedule(NetworkLink::OwnDown(0));
    assert_eq!(without.rate[0].value, Rate::from_bits_per_second(70_000_000));
    assert_eq!((without.rate.len(), without.delay.len()), (1, 1));
    assert_eq!(without.delay[0].delay, Duration::ZERO);
}

#[test]
fn wrong_keys_are_refused_in_one_sentence() {
    for (keys, rest, expected) in [
        ("pops = [\"Cairo\"]", "", "network.pops: has no effect without gateways"),
        ("gateways = []", "", "network.gateways: has 0; expected 1 to 10000 sites"),
        ("gateways = [\"Atlantis\"]", "", "network.gateways.0: unknown place \"Atlantis\""),
        ("gateways = [\"Cairo\", \"Cairo\"]", "", "network.sites: has \"Cairo, EG\" twice"),
        ("fibre_stretch = 0.5", "", "network.fibre_stretch: is 0.5; expected 1 to 10"),
        (
            "handover = \"stiky\"",
            "",
            "network.handover: \"stiky\" is not a handover policy (did you mean sticky?)",
        ),
        (
            "relay = \"access\"",
            "",
            "network.relay: unknown variant `access`, expected `isl` or `bent-pipe`",
        ),
        (
            "",
            "[network.user_links]\naccess = \"starlink\"",
            "network.user_links.access: is about the link of a single site",
        ),
        (
            "",
            "[network.user_links]\nper = \"site\"\naccess = \"starlnk\"",
            "network.user_links.access: unknown access profile",
        ),
        (
            "",
            "[network.user_links]\nper = \"cell\"",
            "network.user_links.per: unknown variant `cell`",
        ),
        (
            "",
            "[network.traffic]\nkind = \"internet\"",
            "network.traffic.kind: is \"internet\", which needs network.gateways",
        ),
    ] {
        let message = error(&scenario(&format!("sites = [\"London\", \"Tokyo\"]\n{keys}"), rest));
        assert!(message.starts_with(&format!("x.toml: {expected}")), "{keys} {rest}: {message}");
    }
    let two = error(&scenario(
        "sites = [{ name = \"A\", lat = 1, lon = 2, handover = \"x\" }, \"London\"]",
        "",
    ));
    assert!(
        two.starts_with("x.toml: network.sites.0.handover: \"x\" is not a handover policy"),
        "{two}"
    );
}
