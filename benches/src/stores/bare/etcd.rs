//! etcd over its JSON gateway: the compare-and-swap of a key, and its own locks.

use super::{super::engine::Engine, Bare, Outcome, SWAPS};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

pub(in crate::stores) struct BareEtcd {
    web: reqwest::blocking::Client,
    url: String,
}

impl BareEtcd {
    pub(in crate::stores) fn at(engine: &Engine) -> Outcome<BareEtcd> {
        let web = reqwest::blocking::Client::builder().no_proxy().build()?;
        Ok(BareEtcd { web, url: format!("http://127.0.0.1:{}", engine.port) })
    }

    pub(in crate::stores) fn post(&self, path: &str, body: &Value) -> Outcome<Value> {
        let answer = self.web.post(format!("{}{path}", self.url)).json(body).send()?;
        Ok(answer.error_for_status()?.json()?)
    }

    /// What `etcdctl lock` does: a lease, a lock under it, a renewal, and both given back.
    pub(in crate::stores) fn lock(&self) -> Outcome<()> {
        let lease = self.post("/v3/lease/grant", &json!({ "TTL": "90" }))?["ID"].clone();
        let name = BASE64_STANDARD.encode("locked");
        let key = self.post("/v3/lock/lock", &json!({ "name": name, "lease": lease }))?["key"].clone();
        self.post("/v3/lease/keepalive", &json!({ "ID": lease }))?;
        self.post("/v3/lock/unlock", &json!({ "key": key }))?;
        self.post("/v3/lease/revoke", &json!({ "ID": lease }))?;
        Ok(())
    }
}

impl Bare for BareEtcd {
    fn cycle(&mut self, bodies: &[String; SWAPS]) -> Outcome<()> {
        let key = BASE64_STANDARD.encode("bare");
        let now = self.post("/v3/kv/range", &json!({ "key": key }))?;
        let mut revision = now["kvs"][0]["mod_revision"].as_str().unwrap_or("0").to_owned();
        for body in bodies {
            let swap = json!({
                "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision }],
                "success": [{ "request_put": { "key": key, "value": BASE64_STANDARD.encode(body) } }],
            });
            let done = self.post("/v3/kv/txn", &swap)?;
            if done["succeeded"] != true {
                return Err(format!("etcd did not swap: {done}").into());
            }
            revision = done["header"]["revision"].as_str().ok_or("etcd names no revision")?.to_owned();
        }
        Ok(())
    }
}
