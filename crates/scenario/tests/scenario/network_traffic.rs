//! Traffic of networks: draws that the seed alone determines, and matrices.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::network::{planned, scenario};

/// Client and server of each flow, by name.
fn pairs(text: &str, origin: &str) -> Vec<[String; 2]> {
    let experiment = planned(text, origin).unwrap();
    let sites = experiment.network.unwrap().request.sites;
    let names = experiment.flows.iter().map(|flow| flow.sites.unwrap());
    names.map(|pair| pair.map(|site| sites[site as usize].name.clone())).collect()
}

/// Sites with so many inhabitants each, in this order.
fn listed(populations: &[(String, u64)]) -> String {
    let table = |(place, (name, population)): (usize, &(String, u64))| {
        format!("{{ name = \"{name}\", lat = {place}, lon = 1, population = {population} }}")
    };
    let tables: Vec<String> = populations.iter().enumerate().map(table).collect();
    format!("interval = \"never\"\nsites = [{}]", tables.join(", "))
}

fn named(count: usize) -> Vec<(String, u64)> {
    (0..count).map(|number| (format!("S{number}"), 1 + 10 * number as u64)).collect()
}

fn drawn(populations: &[(String, u64)], traffic: &str, seed: u64) -> Vec<[String; 2]> {
    let keys = format!("{}\n[network.traffic]\n{traffic}", listed(populations));
    let text = scenario(&keys, "").replace("[run]", &format!("[run]\nseed = {seed}"));
    pairs(&text, "x.toml")
}

#[test]
fn a_permutation_has_each_site_once_as_client_and_once_as_server() {
    let mut distinct = BTreeSet::new();
    for (count, seed) in [(2, 1), (3, 2), (4, 3), (5, 4), (7, 5), (20, 6), (20, 7)] {
        let sites = named(count);
        let found = drawn(&sites, "kind = \"permutation\"", seed);
        let all: BTreeSet<String> = sites.iter().map(|(name, _)| name.clone()).collect();
        for side in [0, 1] {
            let once: BTreeSet<String> = found.iter().map(|pair| pair[side].clone()).collect();
            assert_eq!((once, found.len()), (all.clone(), count), "{count} sites, seed {seed}");
        }
        assert!(found.iter().all(|[client, server]| client != server), "{found:?}");
        let mut reversed = sites;
        reversed.reverse();
        assert_eq!(drawn(&reversed, "kind = \"permutation\"", seed), found, "order of the sites");
        distinct.insert(found);
    }
    assert_eq!(distinct.len(), 7, "other seeds give other permutations");
}

#[test]
fn all_permutations_without_a_fixed_point_are_drawn() {
    let mut counts: BTreeMap<Vec<[String; 2]>, u32> = BTreeMap::new();
    for seed in 0..180 {
        *counts.entry(drawn(&named(4), "kind = \"permutation\"", seed)).or_default() += 1;
    }
    assert_eq!(counts.len(), 9, "there are nine of four sites");
    assert!(counts.values().all(|count| (8..=36).contains(count)), "{counts:?}");
}

#[test]
fn a_pairing_has_both_directions_of_each_pair() {
    let sites = named(10);
    let found = drawn(&sites, "kind = \"pairing\"\ncount = 3", 1);
    let distinct: BTreeSet<[String; 2]> = found.iter().cloned().collect();
    assert_eq!((found.len(), distinct.len()), (30, 10));
    let clients: BTreeSet<&String> = distinct.iter().map(|pair| &pair[0]).collect();
    assert_eq!(clients.len(), 10);
    for [client, server] in &distinct {
        assert!(client != server && distinct.contains(&[server.clone(), client.clone()]));
    }
    let keys = format!("{}\n[network.traffic]\nkind = \"pairing\"", listed(&named(3)));
    let refused = planned(&scenario(&keys, ""), "x.toml").map(drop).unwrap_err().to_string();
    assert!(refused.contains(
        "network.traffic.kind: is \"pairing\", which needs an even number of sites, and there are 3"
    ));
}

#[test]
fn gravity_is_determined_by_the_seed_and_not_by_the_order_of_sites() {
    let (sites, traffic) = (named(12), "kind = \"gravity\"\nflows = 50");
    let found = drawn(&sites, traffic, 1);
    assert_eq!(found.len(), 50);
    assert!(found.iter().all(|[client, server]| client != server));
    assert_eq!(drawn(&sites, traffic, 1), found);
    assert_ne!(drawn(&sites, traffic, 2), found);
    let mut other = sites;
    other.rotate_left(5);
    other.swap(1, 7);
    assert_eq!(drawn(&other, traffic, 1), found);
}

#[test]
fn gravity_follows_the_product_of_populations() {
    let sites =
        [("A", 6), ("B", 3), ("C", 1), ("D", 0)].map(|(name, size)| (name.to_owned(), size));
    let found = drawn(&sites, "kind = \"gravity\"\nflows = 10000", 1);
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for pair in &found {
        *counts.entry(pair.join("")).or_default() += 1;
    }
    // The products are 18, 6 and 3, each in both directions: 54 in all.
    for (pair, product) in [("AB", 18), ("BA", 18), ("AC", 6), ("CA", 6), ("BC", 3), ("CB", 3)] {
        let expected = f64::from(product) / 54.0 * 10_000.0;
        let error = f64::from(counts[pair]) - expected;
        assert!(error.abs() < 5.0 * expected.sqrt(), "{pair}: {} of {expected}", counts[pair]);
    }
    assert_eq!(counts.len(), 6, "D has no inhabitants");
}

#[test]
fn gravity_needs_populations() {
    let traffic = "[network.traffic]\nkind = \"gravity\"\nflows = 3";
    let of = |sites: &str| {
        planned(
            &scenario(&format!("interval = \"never\"\nsites = {sites}\n{traffic}"), ""),
            "x.toml",
        )
    };
    let known = of("[\"London\", \"New York\", \"Cairo\"]").unwrap();
    assert_eq!(known.flows.len(), 3);
    assert_eq!(of("\"top-4\"").unwrap().flows.len(), 3);
    let message = of("[\"London\", \"1,2\"]").map(drop).unwrap_err().to_string();
    assert!(message.contains("network.sites: \"1,2\" has no known population"), "{message}");
    let alone = of(
        "[{ name = \"A\", lat = 1, lon = 2, population = 5 }, { name = \"B\", lat = 3, lon = 2, population = 0 }]",
    );
    assert!(
        alone.map(drop).unwrap_err().to_string().contains("fewer than two sites with inhabitants")
    );
}

#[test]
fn a_matrix_gives_the_number_of_flows() {
    let directory = tempfile::tempdir().unwrap();
    let origin = directory.path().join("x.toml").display().to_string();
    let keys = "sites = [\"London\", \"New York\", \"Cairo\"]\ninterval = \"never\"\n\
                [network.traffic]\nkind = \"matrix\"\nfile = \"m.csv\"";
    let with = |content: &str| {
        fs::write(directory.path().join("m.csv"), content).unwrap();
        planned(&scenario(keys, ""), &origin)
    };
    let flows = with(
        "\u{feff}flows,from,To\n2,London,\"New York City, US\"\n0,Cairo,Cairo\n1,Cairo,London\n",
    )
    .unwrap()
    .flows;
    let found: Vec<[u32; 2]> = flows.iter().map(|flow| flow.sites.unwrap()).collect();
    assert_eq!(found, [[0, 1], [0, 1], [2, 0]]);
    for (content, expected) in [
        ("from,to\nLondon,Cairo\n", "m.csv: line 1: no column `flows`; expected"),
        (
            "from,to,flows\n\nLondon,Cairo,1\nLondon,Paris,1\n",
            "m.csv: line 4: there is no site \"Paris\"",
        ),
        (
            "from,to,flows\nLondon,Cairo,-1\n",
            "m.csv: line 2: flows is \"-1\"; expected a whole number up to 10000",
        ),
        ("from,to,flows\nLondon,Cairo,1.5\n", "m.csv: line 2: flows is \"1.5\""),
        ("from,to,flows\nLondon,Cairo,10001\n", "m.csv: line 2: flows is \"10001\""),
        ("from,to,flows\nLondon,Cairo\n", "m.csv: line 2: no cell `flows`"),
        (
            "from,to,flows\nLondon,Cairo,1\nCairo,Cairo,1\n",
            "m.csv: line 3: \"Cairo\" to itself; expected two sites",
        ),
    ] {
        let message = with(content).map(drop).unwrap_err().to_string();
        assert!(message.contains(expected), "{content}: {message}");
        assert!(message.starts_with(&directory.path().display().to_string()), "{message}");
    }
    let keys = keys.replace("m.csv", "n.csv");
    let message = planned(&scenario(&keys, ""), &origin).map(drop).unwrap_err().to_string();
    assert!(message.contains("network.traffic.file: no such file: \"n.csv\""), "{message}");
}

#[test]
fn traffic_follows_the_flows_and_has_the_keys_of_flows() {
    let keys = "sites = [\"London\", \"New York\", \"Cairo\"]\n[network.traffic]\nkind = \"permutation\"\ncc = \"bbr\"\n\
                start = \"200 ms\"\nstart_spread = \"1 s\"\nbytes = \"1 MB\"";
    let experiment =
        planned(&scenario(keys, "[[flow]]\nbetween = [\"Cairo\", \"London\"]"), "x.toml").unwrap();
    let ids: Vec<u32> = experiment.flows.iter().map(|flow| flow.id).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    assert_eq!(experiment.flows[0].cc(), Some("cubic"));
    let starts: BTreeSet<_> = experiment.flows[1..].iter().map(|flow| flow.start).collect();
    assert_eq!(starts.len(), 3, "each flow has a start of its own");
    for flow in &experiment.flows[1..] {
        assert_eq!(flow.cc(), Some("bbr"));
        assert!((0.2..1.2).contains(&flow.start.as_secs_f64()));
    }
    let clients: BTreeSet<u32> =
        experiment.flows[1..].iter().map(|flow| flow.sites.unwrap()[0]).collect();
    assert_eq!(clients.len(), 3);
}
