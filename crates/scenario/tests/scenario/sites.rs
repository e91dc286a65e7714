//! Lists of sites in the forms that users have.

use std::fs;

use skyhop_scenario::catalogue::{SiteRow, site_list};

/// Read a user's list; an error comes without its directory.
fn read(text: &str) -> Result<Vec<SiteRow>, String> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("s.csv"), text).unwrap();
    let rows = site_list("s.csv", directory.path(), "x.toml", "path.gateways");
    rows.map_err(|error| error.to_string().replace(&format!("{}/", directory.path().display()), ""))
}

fn tokyo(altitude_m: f64) -> SiteRow {
    SiteRow {
        name: "Tokyo".to_owned(),
        latitude_deg: 35.5,
        longitude_deg: 139.75,
        altitude_m,
        population: None,
    }
}

#[test]
fn lists_of_other_tools_are_read() {
    for text in [
        "name,latitude_deg,longitude_deg\nTokyo,35.5,139.75\n",
        "\u{feff}name,latitude_deg,longitude_deg\r\nTokyo,35.5,139.75",
        "Country,Name,Lat,Lon\nJapan,Tokyo,35.5,139.75\n",
        "name,latitude,longitude,altitude\nTokyo,35.5,139.75,0\n",
        "name,lat,lon,altitude_m\nTokyo,35.5,139.75,\n",
        "Tokyo,35.5,139.75\n",
        "0,Tokyo,35.5,139.75\n",
        "\u{feff}0,Tokyo,35.5,139.75,0.0,-3954843.6,3354935.2,3700263.8\n",
    ] {
        assert_eq!(read(text), Ok(vec![tokyo(0.0)]), "{text}");
    }
    assert_eq!(read("Tokyo,35.5,139.75,40\n0,90,0,1\n").unwrap()[0], tokyo(40.0));
}

#[test]
fn populations_are_read_where_a_list_states_them() {
    let rows =
        read("name,lat,lon,Population\nTokyo,35.5,139.75,9733276\nDogo,36.2,133.3,\n").unwrap();
    assert_eq!(rows[0], SiteRow { population: Some(9_733_276.0), ..tokyo(0.0) });
    assert_eq!(rows[1].population, None);
    let wrong = read("name,lat,lon,population\nTokyo,35.5,139.75,-1\n").unwrap_err();
    assert_eq!(wrong, "s.csv: line 2: a population of -1; expected 0 to 1e12");
}

#[test]
fn an_error_names_line_and_column_in_the_users_words() {
    let of = |text: &str| read(text).unwrap_err();
    let head = "name,latitude_deg,longitude_deg\n";
    assert_eq!(
        of("station,latitude_deg,longitude_deg\nTokyo,35.5,139.75\n"),
        "s.csv: line 2: no column `name`; expected the names of columns name, latitude_deg, longitude_deg, separated \
         by commas, in the first line"
    );
    assert!(of("name:lat:lon\nTokyo:35.5:139.75\n").contains("line 2: no column `name`"));
    for separator in [";", "\t"] {
        let list = "name;lat;lon\nTokyo;35.5;139.75\n".replace(';', separator);
        assert_eq!(read(&list).unwrap().len(), 1);
    }
    assert!(of("name,lat,latitude,lon\nTokyo,1,2,3\n").contains("two columns `latitude_deg`"));
    assert_eq!(
        of(&format!("{head}\n\nTokyo,N35,139.75\n")),
        "s.csv: line 4: latitude_deg is \"N35\"; expected a number"
    );
    assert_eq!(
        of("Tokyo,35.5,139.75,high\n"),
        "s.csv: line 1: altitude_m is \"high\"; expected a number"
    );
    assert_eq!(
        of(&format!("{head}Tokyo,35.5\n")),
        "s.csv: line 2: 2 cells; expected 3, as in the first line"
    );
    assert_eq!(of("0,Tokyo,95.5,139.75,0\n"), "s.csv: line 1: 95.5, 139.75 is not on Earth");
    assert_eq!(of(head), "s.csv: the list: has no rows");
    assert_eq!(of(""), "s.csv: the list: has no rows");
}
