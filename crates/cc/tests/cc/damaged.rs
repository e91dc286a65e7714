//! Trial of the parameter parser with damaged text.

use skyhop_cc::{Module, Param};
use skyhop_needs::fuzz::Trial;

/// Samples, one for each parameter of each module: "cubic beta 0.7000".
fn settings() -> Vec<String> {
    let of = |module: &'static Module| {
        let setting = |param: Param| {
            let value = param.text_of(param.initial);
            format!("{} {} {value}", module.name(), param.name)
        };
        module.params().map(setting)
    };
    let units = ["bbr min_rtt_window 10 s", "bbr min_rtt_window 300 ms", "cubic c 4e-1"];
    Module::all().iter().flat_map(of).chain(units.map(str::to_owned)).collect()
}

#[test]
fn parameters() {
    Trial::of_text("parameters", settings()).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let mut words = text.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (module, name, value) = (word(), word(), word());
        let module = Module::find(module).map_err(|error| error.to_string())?;
        let table: Vec<Param> = module.params().collect();
        let values = Param::values(module.name(), &table, &[(name, value)]);
        let values = values.map_err(|error| error.to_string())?;
        for (param, value) in table.iter().zip(values) {
            assert!((param.least..=param.most).contains(&(value as i64)), "{name} is {value}");
        }
        Ok::<(), String>(())
    });
}
