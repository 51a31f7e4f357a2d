"""An authority and certificates in a folder of their own, made by deploy/tls/make-ca, and some that
it would not make, by openssl.

    with MadeCa("server=127.0.0.1", "client") as ca:
        start("outrider-worker", folder, *ca.door("server"))
"""
import datetime
import os
import shutil
import subprocess
import tempfile

from cluster import SOURCE

MAKE_CA = os.path.join(SOURCE, "deploy", "tls", "make-ca")


class MadeCa:
    def __init__(self, *names):
        self.folder = tempfile.mkdtemp(prefix="outrider-ca-")
        self.make(*names)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def make(self, *names):
        """Certificates NAME=HOST,...; renews those that there are."""
        subprocess.run([MAKE_CA, self.folder, *names], check=True, stdout=subprocess.DEVNULL,
                       timeout=60)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def write(self, name, text):
        """Under its name as a whole."""
        with open(self.path(name + ".new"), "w", encoding="utf-8") as file:
            os.chmod(file.name, 0o600)
            file.write(text)
        os.rename(self.path(name + ".new"), self.path(name))

    # ---- options ----

    def door(self, name, client_ca=True):
        """Options of a server; with client_ca it asks for certificates."""
        flags = ["--tls-certificate", self.path(name + ".pem"), "--tls-key",
                 self.path(name + ".key")]
        return flags + (["--tls-client-ca", self.path("ca.pem")] if client_ca else [])

    def caller(self, prefix, name=None):
        """Options of a client."""
        flags = [prefix + "-ca", self.path("ca.pem")]
        if name:
            flags += [prefix + "-certificate", self.path(name + ".pem"), prefix + "-key",
                      self.path(name + ".key")]
        return flags

    # ---- what make-ca does not make ----

    def make_short(self, name, seconds, host="127.0.0.1"):
        """A certificate that is valid for so many seconds more; negative: that has expired."""
        database = tempfile.mkdtemp(dir=self.folder)
        config = os.path.join(database, "cnf")
        with open(os.path.join(database, "index"), "w", encoding="ascii"):
            pass
        with open(config, "w", encoding="ascii") as file:
            file.write(f"[ca]\ndefault_ca=own\n[own]\ndatabase={database}/index\nrand_serial=yes\n"
                       f"new_certs_dir={database}\ndefault_md=sha256\npolicy=any\n"
                       "[any]\ncommonName=supplied\n"
                       "[req]\ndistinguished_name=dn\n[dn]\n"
                       f"[peer]\nsubjectAltName=IP:{host}\nbasicConstraints=critical,CA:FALSE\n")
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        dates = ["-startdate", "20200101000000Z", "-enddate", end.strftime("%Y%m%d%H%M%SZ")]
        request = os.path.join(database, "request")
        for command in (
                ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out",
                 self.path(name + ".key")],
                ["req", "-new", "-config", config, "-subj", f"/CN={name}", "-key",
                 self.path(name + ".key"), "-out", request],
                ["ca", "-batch", "-notext", "-config", config, "-extensions", "peer", *dates,
                 "-cert", self.path("ca.pem"), "-keyfile", self.path("ca.key"), "-in", request,
                 "-out", self.path(name + ".pem")]):
            subprocess.run(["openssl", *command], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE)
