from nsqadmin.cli import main

main()
