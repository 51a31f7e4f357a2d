/* ctest: labels=quick,threads libs=access timeout=60 */
/* Certificate files: what is accepted, each refusal with its sentence, and reading them again. */
#include <pthread.h>
#include <sys/stat.h>

#include "access/certificates.h"
#include "tests/support/certificate_maker.h"

enum { N_TAKERS = 4, N_RENEWALS = 50 };

static struct made authority, peer, other;
static struct certificates *certificates;
static struct certificate_texts texts;
static uint64_t version;
static _Thread_local struct error err;

static void setup(void)
{
    made_open_folder();
    authority = make_certificate(NULL, NULL, -HOUR_S, HOUR_S);
    peer = make_certificate("IP:127.0.0.1", &authority, -HOUR_S, HOUR_S);
    other = make_certificate("IP:127.0.0.1", &authority, -HOUR_S, HOUR_S);
    made_write_certificate(&authority, "ca");
    made_write_certificate(&peer, "certificate");
    made_write_key(&peer, "key", NULL);
    version = 0;
}

static void teardown(void)
{
    static const char *const names[] = {"ca", "certificate", "key"};
    certificates_close(certificates);
    certificates = NULL;
    for (int i = 0; i < 3; i++) {
        unlink(made_path(names[i]));
    }
    rmdir(made_folder);
    made_free(&authority);
    made_free(&peer);
    made_free(&other);
}

static int open_files(const char *certificate, const char *key, const char *ca)
{
    const struct certificate_files files = {.certificate =
                                                certificate ? made_path(certificate) : NULL,
                                            .key = key ? made_path(key) : NULL,
                                            .ca = ca ? made_path(ca) : NULL};
    return certificates_open(&certificates, &files, &err);
}

static int open_all(void)
{
    return open_files("certificate", "key", "ca");
}

START_TEST(a_key_that_others_can_read_or_write_is_refused)
{
    static const struct {
        mode_t mode;
        bool is_taken;
    } cases[] = {{0600, true},  {0400, true},  {0640, true},  {0440, true},
                 {0644, false}, {0604, false}, {0602, false}, {0620, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(chmod(made_path("key"), cases[i].mode), 0);
        if (cases[i].is_taken) {
            CHECK_OK(open_all());
            certificates_close(certificates);
        } else {
            CHECK_ERR(open_all(), ERR_FORMAT, "can be read or written by others than its owner");
        }
    }
    certificates = NULL;
}
END_TEST

START_TEST(whole_files_are_taken_once_for_each_version)
{
    CHECK_OK(open_all());
    ck_assert(certificates_has_authorities(certificates));
    CHECK_OK(certificates_take(certificates, &version, &texts, &err));
    ck_assert_ptr_nonnull(strstr(texts.certificate, "BEGIN CERTIFICATE"));
    ck_assert_ptr_nonnull(strstr(texts.key, "BEGIN PRIVATE KEY"));
    ck_assert_ptr_nonnull(strstr(texts.ca, "BEGIN CERTIFICATE"));
    certificate_texts_free(&texts);
    ck_assert_uint_eq(version, 1);
    CHECK_OK(certificates_take(certificates, &version, &texts, &err));
    ck_assert_ptr_null(texts.certificate);
}
END_TEST

START_TEST(authorities_alone_are_enough_for_a_client)
{
    CHECK_OK(open_files(NULL, NULL, "ca"));
    CHECK_OK(certificates_take(certificates, &version, &texts, &err));
    ck_assert_ptr_null(texts.certificate);
    ck_assert_ptr_nonnull(texts.ca);
    certificate_texts_free(&texts);
}
END_TEST

START_TEST(several_certificates_in_a_file_are_a_chain)
{
    FILE *file = made_create("certificate");
    PEM_write_X509(file, peer.certificate);
    fputs("what stands between them is no matter\n", file);
    PEM_write_X509(file, authority.certificate);
    made_finish(file, "certificate");
    CHECK_OK(open_all());
}
END_TEST

START_TEST(certificate_and_key_come_together)
{
    CHECK_ERR(open_files("certificate", NULL, "ca"), ERR_ARGUMENT, "without its private key");
    CHECK_ERR(open_files(NULL, "key", "ca"), ERR_ARGUMENT, "without its certificate");
}
END_TEST

START_TEST(files_that_are_missing_or_something_else_are_named)
{
    CHECK_ERR(open_files("nothing", "key", "ca"), ERR_NOT_FOUND, made_path("nothing"));
    CHECK_ERR(open_files("key", "key", "ca"), ERR_FORMAT, "key holds no certificate");
    CHECK_ERR(open_files("certificate", "certificate", "ca"), ERR_FORMAT, "holds no private key");
    CHECK_ERR(open_files("certificate", "key", "key"), ERR_FORMAT, "key holds no certificate");
    made_write_text("", "ca");
    CHECK_ERR(open_all(), ERR_FORMAT, "ca holds no certificate");
}
END_TEST

START_TEST(damaged_certificate_after_a_good_one_is_refused)
{
    FILE *file = made_create("ca");
    PEM_write_X509(file, authority.certificate);
    fputs("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", file);
    made_finish(file, "ca");
    CHECK_ERR(open_all(), ERR_FORMAT, "certificate 2 of");
}
END_TEST

START_TEST(key_of_another_certificate_is_refused)
{
    made_write_key(&other, "key", NULL);
    CHECK_ERR(open_all(), ERR_FORMAT, "does not belong to the certificate");
}
END_TEST

START_TEST(key_with_a_password_is_refused)
{
    made_write_key(&peer, "key", "secret");
    CHECK_ERR(open_all(), ERR_FORMAT, "is encrypted; give one without a password");
}
END_TEST

START_TEST(certificate_out_of_its_time_is_refused)
{
    struct made old = make_certificate("IP:127.0.0.1", &authority, -2L * HOUR_S, -HOUR_S);
    struct made early = make_certificate("IP:127.0.0.1", &authority, HOUR_S, 2L * HOUR_S);
    made_write_certificate(&old, "certificate");
    made_write_key(&old, "key", NULL);
    CHECK_ERR(open_all(), ERR_FORMAT, "has expired on 20");
    made_write_certificate(&early, "certificate");
    made_write_key(&early, "key", NULL);
    CHECK_ERR(open_all(), ERR_UNAVAILABLE, "is not valid before 20"); /* it will be */
    made_free(&old);
    made_free(&early);
}
END_TEST

START_TEST(renewed_files_are_read_when_somebody_asks)
{
    CHECK_OK(open_all());
    CHECK_OK(certificates_take(certificates, &version, &texts, &err));
    certificate_texts_free(&texts);
    made_write_certificate(&other, "certificate");
    ck_assert_uint_eq(certificates_version(certificates), 1); /* its key is still the old one */
    made_write_key(&other, "key", NULL);
    CHECK_OK(certificates_take(certificates, &version, &texts, &err));
    ck_assert_ptr_nonnull(texts.certificate);
    ck_assert_uint_eq(version, 2);
    certificate_texts_free(&texts);
}
END_TEST

START_TEST(file_that_becomes_bad_changes_nothing_until_it_is_good_again)
{
    CHECK_OK(open_all());
    made_write_text("nonsense", "certificate");
    ck_assert_uint_eq(certificates_version(certificates), 1);
    certificates_reload(certificates);
    ck_assert_uint_eq(certificates_version(certificates), 1);
    unlink(made_path("certificate"));
    ck_assert_uint_eq(certificates_version(certificates), 1);
    made_write_certificate(&peer, "certificate");
    ck_assert_uint_eq(certificates_version(certificates), 2);
}
END_TEST

/* How many lines standard error gets while the certificates are looked at three times. */
static int count_lines(void)
{
    int ends[2], n = 0;
    char byte;
    int shown = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    for (int i = 0; i < 3; i++) {
        certificates_version(certificates);
    }
    dup2(shown, STDERR_FILENO);
    close(shown);
    close(ends[1]);
    while (read(ends[0], &byte, 1) == 1)
        n += byte == '\n';
    close(ends[0]);
    return n;
}

START_TEST(bad_file_is_reported_once)
{
    CHECK_OK(open_all());
    ck_assert_int_eq(count_lines(), 0);
    made_write_text("nonsense", "key");
    ck_assert_int_eq(count_lines(), 1);
}
END_TEST

START_TEST(reload_reads_files_that_look_unchanged)
{
    CHECK_OK(open_all());
    certificates_reload(certificates);
    ck_assert_uint_eq(certificates_version(certificates), 2);
    certificates_reload(NULL);
}
END_TEST

static void *take_often(void *unused)
{
    uint64_t mine = 0;
    (void)unused;
    while (mine < 1 + N_RENEWALS) {
        struct certificate_texts taken;
        CHECK_OK(certificates_take(certificates, &mine, &taken, &err));
        certificate_texts_free(&taken);
    }
    return NULL;
}

START_TEST(many_threads_take_what_another_renews)
{
    pthread_t threads[N_TAKERS];
    CHECK_OK(open_all());
    for (int i = 0; i < N_TAKERS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_often, NULL), 0);
    }
    for (int i = 0; i < N_RENEWALS; i++) {
        certificates_reload(certificates);
    }
    for (int i = 0; i < N_TAKERS; i++) {
        pthread_join(threads[i], NULL);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("certificates");
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, setup, teardown);
    tcase_add_test(files, whole_files_are_taken_once_for_each_version);
    tcase_add_test(files, a_key_that_others_can_read_or_write_is_refused);
    tcase_add_test(files, authorities_alone_are_enough_for_a_client);
    tcase_add_test(files, several_certificates_in_a_file_are_a_chain);
    tcase_add_test(files, certificate_and_key_come_together);
    tcase_add_test(files, files_that_are_missing_or_something_else_are_named);
    tcase_add_test(files, damaged_certificate_after_a_good_one_is_refused);
    tcase_add_test(files, key_of_another_certificate_is_refused);
    tcase_add_test(files, key_with_a_password_is_refused);
    tcase_add_test(files, certificate_out_of_its_time_is_refused);
    tcase_add_test(files, renewed_files_are_read_when_somebody_asks);
    tcase_add_test(files, file_that_becomes_bad_changes_nothing_until_it_is_good_again);
    tcase_add_test(files, bad_file_is_reported_once);
    tcase_add_test(files, reload_reads_files_that_look_unchanged);
    tcase_add_test(files, many_threads_take_what_another_renews);
    suite_add_tcase(suite, files);
    return check_main(suite);
}
