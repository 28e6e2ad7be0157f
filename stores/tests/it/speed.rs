//! How long a read and a swap take through the helper, over what they take by the engine's own client, and with many other
//! records. Numbers for people, on this machine: `cargo test -p git-fence-stores --release -- --ignored --nocapture speed`.

use crate::{
    engines::{Engine, Kind},
    helper::Helper,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const ROUNDS: usize = 300;
const OTHERS: usize = 10_000;
/// As long as the record of a lease.
const BODY: usize = 600;

/// Somebody who reads and swaps the record of its own.
trait Client {
    fn read_and_swap(&mut self, next: &str);
}

struct OverHelper(Helper);

impl Client for OverHelper {
    fn read_and_swap(&mut self, next: &str) {
        let now = self.0.record("n");
        self.0.win("n", now.as_ref(), next);
    }
}

struct BareEtcd {
    web: reqwest::blocking::Client,
    url: String,
}

impl BareEtcd {
    fn post(&self, path: &str, body: &Value) -> Value {
        self.web.post(format!("{}{path}", self.url)).json(body).send().unwrap().json().unwrap()
    }
}

impl Client for BareEtcd {
    fn read_and_swap(&mut self, next: &str) {
        let key = BASE64_STANDARD.encode("bare");
        let now = self.post("/v3/kv/range", &json!({ "key": key }));
        let revision = now["kvs"][0]["mod_revision"].as_str().unwrap_or("0");
        let done = self.post(
            "/v3/kv/txn",
            &json!({
                "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision }],
                "success": [{ "request_put": { "key": key, "value": BASE64_STANDARD.encode(next) } }],
            }),
        );
        assert_eq!(done["succeeded"], true);
    }
}

struct BarePostgres {
    client: postgres::Client,
    read: postgres::Statement,
    replace: postgres::Statement,
}

impl BarePostgres {
    fn at(engine: &Engine) -> BarePostgres {
        let mut client = postgres::Client::connect(&engine.url, postgres::NoTls).unwrap();
        client.execute("INSERT INTO git_fence_records (name, version, body) VALUES ('bare', 1, '')", &[]).unwrap();
        let read = client.prepare("SELECT version, body FROM git_fence_records WHERE name = $1").unwrap();
        let replace = client
            .prepare("UPDATE git_fence_records SET version = version + 1, body = $2 WHERE name = $1 AND version = $3")
            .unwrap();
        BarePostgres { client, read, replace }
    }
}

impl Client for BarePostgres {
    fn read_and_swap(&mut self, next: &str) {
        let row = self.client.query_one(&self.read, &[&"bare"]).unwrap();
        let version: i64 = row.get(0);
        assert_eq!(self.client.execute(&self.replace, &[&"bare", &next, &version]).unwrap(), 1);
    }
}

struct BareRedis(redis::Connection);

impl Client for BareRedis {
    fn read_and_swap(&mut self, next: &str) {
        let now: Option<String> = redis::cmd("GET").arg("bare").query(&mut self.0).unwrap();
        let swap = "if redis.call('GET', KEYS[1]) == ARGV[1] or ARGV[1] == '' then \
                    redis.call('SET', KEYS[1], ARGV[2]) return 1 end return 0";
        let arguments = (now.unwrap_or_default(), next);
        let won: u8 = redis::cmd("EVAL").arg(swap).arg(1).arg("bare").arg(arguments).query(&mut self.0).unwrap();
        assert_eq!(won, 1);
    }
}

fn bare(kind: Kind, engine: &Engine) -> Box<dyn Client> {
    match kind {
        Kind::Etcd => Box::new(bare_etcd(engine)),
        Kind::Postgres => Box::new(BarePostgres::at(engine)),
        Kind::Redis => Box::new(BareRedis(redis::Client::open(&*engine.url).unwrap().get_connection().unwrap())),
        Kind::Http => unreachable!("the test's own server is no engine"),
    }
}

fn bare_etcd(engine: &Engine) -> BareEtcd {
    let _ = rustls::crypto::ring::default_provider().install_default();
    BareEtcd { web: reqwest::blocking::Client::new(), url: engine.url.replace("etcd://", "http://") }
}

/// Puts many other records next to ours.
fn crowd(kind: Kind, engine: &Engine) {
    match kind {
        Kind::Etcd => {
            let etcd = bare_etcd(engine);
            let put = |n: usize| {
                let (key, value) = (format!("git-fence/other {n}"), "x".repeat(BODY));
                let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
                json!({ "request_put": { "key": key, "value": value } })
            };
            for start in (0..OTHERS).step_by(100) {
                let puts: Vec<Value> = (start..start + 100).map(put).collect();
                assert_eq!(etcd.post("/v3/kv/txn", &json!({ "success": puts }))["succeeded"], true);
            }
        }
        Kind::Postgres => {
            let others = format!("SELECT 'other ' || n, 1, repeat('x', {BODY}) FROM generate_series(1, {OTHERS}) n");
            engine.psql(&format!("INSERT INTO git_fence_records (name, version, body) {others}"));
            engine.psql("VACUUM ANALYZE git_fence_records");
        }
        Kind::Redis => {
            let others = format!(
                "for n = 1, {OTHERS} do redis.call('SET', 'git-fence:other ' .. n, string.rep('x', {BODY})) end"
            );
            engine.redis_cli(&["EVAL", &others, "0"]);
        }
        Kind::Http => {}
    }
}

/// A number that is hard to guess and easy to make: nothing hangs on it but the order.
fn shuffled(order: &mut [usize], state: &mut u64) {
    for last in (1..order.len()).rev() {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, usize::try_from(*state >> 33).unwrap() % (last + 1));
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
#[ignore = "prints numbers, and asserts none"]
fn speed_of_a_read_and_a_swap() {
    println!("read and swap, medians of {ROUNDS}, in one shuffled run");
    for kind in [Kind::Etcd, Kind::Postgres, Kind::Redis] {
        let (Some(empty), Some(full)) = (kind.start(), kind.start()) else { continue };
        crowd(kind, &full);
        let at = |engine: &Engine| Box::new(OverHelper(Helper::at(&engine.url)));
        let mut clients: [Box<dyn Client>; 4] = [at(&empty), bare(kind, &empty), at(&full), bare(kind, &full)];
        let mut times = [const { Vec::new() }; 4];
        let (mut order, mut state) = ([0, 1, 2, 3], 7);
        for round in 0..ROUNDS + 20 {
            shuffled(&mut order, &mut state);
            for client in order {
                let next = format!("{round:0BODY$}");
                let start = Instant::now();
                clients[client].read_and_swap(&next);
                // The first ones only warm up.
                if round >= 20 {
                    times[client].push(start.elapsed());
                }
            }
        }
        let [helper, own, crowded, own_crowded] = times.map(median);
        println!("{kind:?}: helper {helper:.1?}, own client {own:.1?}: {:.2}", helper.div_duration_f64(own));
        println!(
            "{kind:?}: with {OTHERS} other records {crowded:.1?}: {:.2} (limit 1.1); own client {own_crowded:.1?}",
            crowded.div_duration_f64(helper)
        );
    }
}
